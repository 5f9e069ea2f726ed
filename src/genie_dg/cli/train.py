"""Train one model: an algorithm, an optimizer and a network on all domains but the ones that are left out."""

from __future__ import annotations

import argparse
import math
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

from genie_dg.arguments import MANY, path_text, some_text, whole
from genie_dg.bench.options import add_flags, options_from
from genie_dg.check import InputError, printable

from ._shared import PRETRAINED, QUICK, console_of, require, usual_size

if TYPE_CHECKING:
    from rich.console import Console

    from genie_dg.bench.assemble import Parts
    from genie_dg.bench.options import RunOptions
    from genie_dg.bench.parallel import World
    from genie_dg.bench.train import Report
    from genie_dg.data.domains import DomainSet
    from genie_dg.runs.config import RunConfig
    from genie_dg.runs.record import Record

SIZE = 224
"""Pixels when a network is named without a size."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What changes the science first, then where it happens."""
    group = add_task(parser)
    parser.add_argument(
        "--lr", type=some_text, metavar="NUMBER", help="learning rate of the optimizer, as --set optimizer.lr="
    )
    parser.add_argument("--steps", type=int, default=300, help="(default: %(default)s)")
    parser.add_argument(
        "--every", type=int, default=50, help="steps between evaluations (default: %(default)s)"
    )
    parser.add_argument("--swad", action="store_true", help="average weights densely over the flat part (SWAD)")
    parser.add_argument(
        "--precision",
        type=some_text,
        default="float32",
        help="float32, bfloat16 or float16 (default: %(default)s)",
    )
    add_settings(group)
    parser.add_argument(
        "--trials",
        type=whole(1, MANY),
        default=1,
        help="train so many trials one after another, from --trial on, and say their mean (%(default)s)",
    )
    parser.add_argument("--quiet", action="store_true", help="say nothing")
    add_flags(parser, "train")


def add_task(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Data, algorithm, optimizer and network, as ``lr-find`` has them, too. Returns the group of settings."""
    parser.add_argument(
        "data",
        type=path_text,
        help="the name of a set, a folder <domain>/<class>/<picture>, a list, or a table of numbers",
    )
    parser.add_argument(
        "--test-domain",
        action="append",
        required=True,
        metavar="DOMAIN",
        type=some_text,
        help="a domain to leave out, by name or index; may be given several times",
    )
    parser.add_argument(
        "--algorithm",
        type=some_text,
        default="ERM",
        help="(default: %(default)s; see genie-dg list algorithms)",
    )
    parser.add_argument(
        "--optimizer",
        type=some_text,
        default="genie",
        help="(default: %(default)s, for pictures in files with scale_free=true unless a network or a setting "
        "is given; see genie-dg list optimizers)",
    )
    parser.add_argument(
        "--backbone",
        type=some_text,
        help=f"(default: {PRETRAINED} with ImageNet weights for pictures in files, cnn for other samples in "
        "memory, mlp for tables; see genie-dg list backbones)",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        type=some_text,
        help="a setting of the algorithm or the optimizer, such as lr=0.3; may be given several times",
    )
    parser.add_argument("--batch-size", type=int, default=32, help="of each domain (default: %(default)s)")
    parser.add_argument("--dropout", type=float, default=0.0, help="before the head (default: %(default)s)")
    parser.add_argument(
        "--image-size",
        type=int,
        help=f"pixels (default: {SIZE}; without --backbone what suits the pictures, on a CPU at most {QUICK})",
    )
    parser.add_argument("--pretrained", action="store_true", help="start from published weights")
    parser.add_argument("--no-augment", action="store_true", help="no augmentation of pictures")
    parser.add_argument(
        "--exact",
        action="store_true",
        help="augment pictures in files by torch, channels first: slower, as runs before version 0.2 were made",
    )
    parser.add_argument("--trial", type=int, default=0, help="seed of splits, weights, batches (%(default)s)")
    parser.add_argument(
        "--threads",
        type=whole(1, MANY),
        default=1,
        help="of torch; another number, other last digits (default: %(default)s)",
    )
    group = parser.add_argument_group("training settings")
    group.add_argument(
        "--label-smoothing", type=float, default=0.0, metavar="PART", help="of each target, for all classes"
    )
    group.add_argument(
        "--class-weights",
        type=some_text,
        default=argparse.SUPPRESS,
        help="balanced: rare classes count as much as others",
    )
    group.add_argument(
        "--freeze", type=int, default=0, metavar="POINTS", help="first feature points that do not train"
    )
    return group


def add_settings(group: argparse._ArgumentGroup) -> None:
    """What happens over the steps of a training; each is off unless given."""
    group.add_argument(
        "--schedule",
        type=some_text,
        default=argparse.SUPPRESS,
        help="cosine or linear: the learning rate falls to 0",
    )
    group.add_argument(
        "--warmup", type=int, default=0, metavar="STEPS", help="first steps, in which the learning rate rises"
    )
    group.add_argument("--clip", type=float, default=0.0, metavar="NORM", help="largest norm of the gradient")
    group.add_argument(
        "--early-stop",
        type=whole(0, MANY),
        default=0,
        metavar="RECORDS",
        help="stop when validation has not risen for so many evaluations",
    )


def run(arguments: argparse.Namespace) -> int:
    """Check, assemble, train, and say how right the model is where it was not trained."""
    require("Training", "bench", {"numpy": "numpy", "PIL": "pillow", "rich": "rich", "polars": "polars"})
    from genie_dg.bench.checks import try_out
    from genie_dg.bench.jobs import OpenSets
    from genie_dg.bench.parallel import joined
    from genie_dg.bench.request import check_here, usable_device
    from genie_dg.bench.trackers.tracker import check_trackers

    options = options_from(arguments)
    check_here(options)
    opened = OpenSets()
    opened.load_plugins(options)
    check_trackers(options.tracks)
    asked_for(arguments, options)  # what is wrong whatever the data are is refused before they are opened
    data = opened.open(arguments.data, options)
    first = config_of(arguments, data, options)
    configs = [replace(first, trial_seed=first.trial_seed + k) for k in range(arguments.trials)]
    try_out(configs, {data.name: data})
    options = replace(options, device=usable_device(options.device))
    with joined(options.device) as world:
        console = console_of(arguments.quiet or not world.first)
        codes = [_run(config, data, options, console, world) for config in configs]
        if len(configs) > 1 and world.first:
            console.print(over_trials([Path(options.out) / config.run_id for config in configs]), markup=False)
    return max(codes)


def _run(config: RunConfig, data: DomainSet, options: RunOptions, console: Console, world: World) -> int:
    from genie_dg.bench.assemble import DegenerateWarning, assemble
    from genie_dg.bench.checkpoint import go_on
    from genie_dg.bench.evaluate import problem_of
    from genie_dg.bench.jobs import run_parts
    from genie_dg.bench.train import NotFinite
    from genie_dg.runs.folder import is_done
    from genie_dg.runtime import keep_memory, same_kernels

    keep_memory()
    with warnings.catch_warnings(record=True) as caught, same_kernels(config.threads):
        warnings.simplefilter("always", DegenerateWarning)
        parts = assemble(config, data, options, world=world)
    for warning in caught:
        console.print(f"[yellow]Note:[/] {warning.message}")
    folder = Path(options.out) / config.run_id
    names = [printable(parts.domains[k]) for k in config.test_domains]
    seen = f" at {config.image_size} pixels" if data.in_files else ""
    free = config.optimizer_settings.get("scale_free") is True
    optimizer = f"{config.optimizer}{' (scale_free)' if free else ''}"
    console.print(
        f"{config.algorithm} with {optimizer} on {printable(data.name)}, {config.backbone}{seen}, "
        f"without {', '.join(names)}: {config.steps} steps, in {folder}",
        markup=False,
    )
    more = options.keep != "none"
    if note := "" if world.size > 1 or is_done(folder) else more_threads(config, options.device):
        console.print(note, markup=False)
    with _bar(console, parts) as report:
        if world.first and (note := go_on(config, folder, options.keep) if more else ""):
            console.print(note, markup=False)
        try:
            records = run_parts(parts, folder, options, report, more)
        except NotFinite as error:
            print(f"genie-dg: {error}", file=sys.stderr)
            return 1
    for line in summary(folder) if world.first else ():
        console.print(printable(line), markup=False)
    if records[-1].step < config.steps - 1:
        console.print(f"Stopped early: validation had not risen for {config.early_stop} records.")
    problem, exploded = problem_of(records, config, data)
    if exploded and world.first:
        print(f"genie-dg: {problem}", file=sys.stderr)
    elif problem:
        console.print(problem, markup=False)
    return int(exploded)


def asked_for(arguments: argparse.Namespace, options: RunOptions) -> RunConfig:
    """The arguments as a configuration that does not know its data yet; the registries answer for names."""
    from genie_dg.bench.checks import weights_digest
    from genie_dg.bench.request import full_names, sort_settings
    from genie_dg.runs.config import TRAINING, RunConfig

    algorithm, optimizer, backbone = full_names(
        arguments.algorithm, arguments.optimizer, arguments.backbone or "cnn"
    )
    of_algorithm, of_optimizer = sort_settings(arguments.set, algorithm, optimizer)
    if arguments.lr is not None:
        _, rate = sort_settings([f"optimizer.lr={arguments.lr}"], algorithm, optimizer)
        if of_optimizer.setdefault("lr", rate["lr"]) != rate["lr"]:
            raise InputError(
                f"got --lr {rate['lr']:g} and --set lr={of_optimizer['lr']:g}, which differ; give one of them."
            )
    return RunConfig(
        dataset=arguments.data,
        test_domains=(0,),
        algorithm=algorithm,
        optimizer=optimizer,
        backbone=backbone,
        algorithm_settings=of_algorithm,
        optimizer_settings=of_optimizer,
        batch_size=arguments.batch_size,
        dropout=arguments.dropout,
        pretrained=arguments.pretrained or bool(options.weights),
        image_size=SIZE if arguments.image_size is None else arguments.image_size,
        augment=not arguments.no_augment,
        steps=arguments.steps,
        checkpoint_every=arguments.every,
        swad=arguments.swad,
        fast=not arguments.exact,
        precision=arguments.precision,
        weights_digest=weights_digest(options.weights),
        trial_seed=arguments.trial,
        threads=arguments.threads,
        **{name: getattr(arguments, name, off) for name, off in TRAINING.items()},
    )


def more_threads(config: RunConfig, device: str) -> str:
    """A note where one thread leaves cores of this machine idle."""
    from genie_dg.runtime import cores

    if device != "cpu" or config.threads > 1 or cores() == 1:
        return ""
    return f"1 thread of {cores()} cores; --threads {cores()} is quicker and gives other last digits."


def config_of(
    arguments: argparse.Namespace, data: DomainSet, options: RunOptions, finds_rate: bool = False
) -> RunConfig:
    """The arguments as a configuration.

    Pictures in files get a pretrained network if none is named, and GENIE is then ``scale_free`` if nothing is
    set and no rate is looked for.
    """
    from genie_dg.bench.request import usable_device
    from genie_dg.protocols.tasks import domain_index

    names = [domain.name for domain in data.domains]
    tested = tuple(domain_index(data.name, names, text) for text in arguments.test_domain)
    asked = asked_for(arguments, options)
    if data.in_files and arguments.backbone is None:
        size = asked.image_size if arguments.image_size else usual_size(data, usable_device(options.device))
        asked = replace(asked, backbone=PRETRAINED, pretrained=True, image_size=size)
        if asked.optimizer == "genie" and not asked.optimizer_settings and not finds_rate:
            asked = replace(asked, optimizer_settings={"scale_free": True})
    if data.is_table and arguments.backbone is None:
        asked = replace(asked, backbone="mlp")
    fast = asked.fast and data.in_files
    return replace(asked, dataset=data.name, test_domains=tested, data_digest=data.digest(), fast=fast)


@contextmanager
def _bar(console: Console, parts: Parts) -> Iterator[Report]:
    """A progress bar with time left on a terminal, and a line for each record everywhere."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns: tuple[Any, ...] = (
        TextColumn("training"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("training", total=parts.config.steps)

        def report(done: int, record: Record | None) -> None:
            progress.update(task, completed=done)
            if record is not None:
                console.print(line_of(record, parts.config.test_domains), markup=False)

        yield report


def line_of(record: Record, test_domains: tuple[int, ...]) -> str:
    """One record as text: validation accuracy of the training domains, accuracy of those left out."""
    loss = "    -" if record.loss is None else f"{record.loss:.3f}"
    return (
        f"step {record.step:>6}  loss {loss}  validation {100 * record.validation(test_domains):5.1f} %  "
        f"left out {100 * record.test(test_domains):5.1f} %"
    )


def over_trials(folders: list[Path]) -> str:
    """The mean and its standard error of what training-domain validation chooses in each trial."""
    from genie_dg.results.frame import load
    from genie_dg.results.select import best_records

    complete = [folder for folder in folders if (folder / "done").exists()]
    if len(complete) < 2:
        return f"{len(complete)} of {len(folders)} trials are complete; a mean needs two."
    best = best_records(load(*complete))
    values = {"validation": best["value"].to_list(), "left out": best["score"].to_list()}
    texts = [
        f"{name} {100 * mean(some):.1f} +/- {100 * stdev(some) / math.sqrt(len(some)):.1f} %"
        for name, some in values.items()
    ]
    left = "" if len(complete) == len(folders) else f" of {len(folders)}, the others failed"
    return f"Mean of {len(complete)} trials{left}, with standard error: {', '.join(texts)}."


def summary(folder: Path) -> list[str]:
    """The record of a run that training-domain validation chooses, as tables show it."""
    from genie_dg.results.frame import load
    from genie_dg.results.select import best_records

    best = best_records(load(folder)).row(0, named=True)
    names, at = best["domains"], best["at"]
    lines = [
        f"Chosen by validation: step {best['chosen_step']}, validation {100 * best['value']:.1f} %, "
        f"left out {100 * best['score']:.1f} %."
    ]
    width = max(map(len, names))
    for k, name in enumerate(names):
        kind = "left out" if k in best["test_domains"] else "trained on"
        inside, outside = (best[part][at * len(names) + k] for part in ("in_acc", "out_acc"))
        shown = "    - % in" if math.isnan(inside) else f"{100 * inside:5.1f} % in"
        lines.append(f"  {name:<{width}}  {kind:<10}  {shown}   {100 * outside:5.1f} % out")
    return lines
