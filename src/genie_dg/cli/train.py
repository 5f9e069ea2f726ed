"""Train one model: an algorithm, an optimizer and a network on all domains but the ones that are left out."""

from __future__ import annotations

import argparse
import math
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genie_dg.arguments import MANY, add_fields, path_text, some_text, typed_fields, whole
from genie_dg.bench.options import add_flags, options_from
from genie_dg.check import printable
from genie_dg.statistics import mean, standard_error

from ._shared import PRETRAINED, console_of, progress_bar, usual_size

if TYPE_CHECKING:
    from rich.console import Console

    from genie_dg.bench.assemble import Parts
    from genie_dg.bench.options import RunOptions
    from genie_dg.bench.parallel import World
    from genie_dg.bench.train import Report
    from genie_dg.data.domains import DomainSet
    from genie_dg.runs.config import RunConfig
    from genie_dg.runs.record import Record

_DEFAULTS: dict[str, Any] = {"steps": 300, "checkpoint_every": 50, "fast": True}
"""Of fields of a run, where these differ from the field's own."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What changes the science first, then where it happens."""
    add_task(parser, "train")
    parser.add_argument(
        "--lr",
        type=some_text,
        metavar="NUMBER",
        help="learning rate of the optimizer; --set optimizer.lr= in short",
    )
    parser.add_argument(
        "--trials",
        type=whole(1, MANY),
        default=1,
        help="train so many trials one after another, from --trial on, and say their mean (%(default)s)",
    )
    parser.add_argument("--quiet", action="store_true", help="say nothing")
    add_flags(parser, "train")


def add_task(parser: argparse.ArgumentParser, verb: str) -> None:
    """Data, algorithm, optimizer and network with their settings, as ``lr-find`` has them, too."""
    from genie_dg.runs.config import RunConfig

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
        "--set",
        action="append",
        metavar="NAME=VALUE",
        type=some_text,
        help="a setting of the algorithm or the optimizer, such as lr=0.3; may be given several times",
    )
    add_fields(parser, RunConfig, verb, **_DEFAULTS)


def run(arguments: argparse.Namespace) -> int:
    """Check, assemble, train, and say how right the model is where it was not trained."""
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
    typed_config(arguments, options)  # what is wrong whatever the data are is refused before they are opened
    data = opened.open(arguments.data, options)
    first = config_of(arguments, data, options)
    configs = [replace(first, trial_seed=first.trial_seed + k) for k in range(arguments.trials)]
    try_out(configs, {data.name: data})
    options = replace(options, device=usable_device(options.device))
    with joined(options.device) as world:
        console = console_of(arguments.quiet or not world.first)
        codes = [_run(config, data, options, console, world, arguments.command) for config in configs]
        if len(configs) > 1 and world.first:
            console.print(over_trials([Path(options.out) / config.run_id for config in configs]), markup=False)
    return max(codes)


def _run(
    config: RunConfig, data: DomainSet, options: RunOptions, console: Console, world: World, words: list[str]
) -> int:
    """Train one trial, and say what came out."""
    from genie_dg.bench.evaluate import problem_of
    from genie_dg.bench.jobs import run_typed
    from genie_dg.bench.train import NotFinite

    parts = _assemble(config, data, options, console, world)
    folder, say = Path(options.out) / config.run_id, partial(console.print, markup=False)
    _announce(config, data, folder, console)
    with _reported(console, parts) as report:
        try:
            records = run_typed(parts, folder, options, words, say, report)
        except NotFinite as error:
            print(f"genie-dg: {error}", file=sys.stderr)
            return 1
    for line in chosen_lines(folder) if world.first else ():
        console.print(printable(line), markup=False)
    if records[-1].step < config.steps - 1:
        console.print(f"Stopped early: validation had not risen for {config.early_stop} records.")
    problem, exploded = problem_of(records, config, data)
    if exploded and world.first:
        print(f"genie-dg: {problem}", file=sys.stderr)
    elif problem:
        console.print(problem, markup=False)
    return int(exploded)


def _assemble(config: RunConfig, data: DomainSet, options: RunOptions, console: Console, world: World) -> Parts:
    """The parts of a run, with a note for each reason why its result says less than it seems."""
    from genie_dg.bench.assemble import DegenerateWarning, assemble
    from genie_dg.runtime import keep_memory, same_kernels

    keep_memory()
    with warnings.catch_warnings(record=True) as caught, same_kernels(config.threads):
        warnings.simplefilter("always", DegenerateWarning)
        parts = assemble(config, data, options, world=world)
    for warning in caught:
        console.print(f"[yellow]Note:[/] {warning.message}")
    return parts


def _announce(config: RunConfig, data: DomainSet, folder: Path, console: Console) -> None:
    names = ", ".join(printable(data.domains[k].name) for k in config.test_domains)
    size = f" at {config.image_size} pixels" if data.in_files else ""
    scale_free = " (scale_free)" if config.optimizer_settings.get("scale_free") is True else ""
    console.print(
        f"{config.algorithm} with {config.optimizer}{scale_free} on {printable(data.name)}, "
        f"{config.backbone}{size}, without {names}: {config.steps} steps, in {folder}",
        markup=False,
    )


def typed_config(arguments: argparse.Namespace, options: RunOptions) -> RunConfig:
    """The arguments as a configuration that does not know its data yet; the registries answer for names."""
    from genie_dg.bench.checks import weights_digest
    from genie_dg.bench.request import full_names, sort_settings
    from genie_dg.runs.config import RunConfig

    typed = {**_DEFAULTS, **typed_fields(arguments, RunConfig)}
    config = RunConfig(arguments.data, (0,), **typed)
    algorithm, optimizer, backbone = full_names(config.algorithm, config.optimizer, config.backbone)
    lr = getattr(arguments, "lr", None)
    words = [*(arguments.set or ()), *([] if lr is None else [f"optimizer.lr={lr}"])]
    of_algorithm, of_optimizer = sort_settings(words, algorithm, optimizer)
    return replace(
        config,
        algorithm=algorithm,
        optimizer=optimizer,
        backbone=backbone,
        algorithm_settings=of_algorithm,
        optimizer_settings=of_optimizer,
        pretrained=config.pretrained or bool(options.weights),
        weights_digest=weights_digest(options.weights),
    )


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
    config = typed_config(arguments, options)
    if data.in_files and arguments.backbone is None:
        size = arguments.image_size or usual_size(data, usable_device(options.device))
        config = replace(config, backbone=PRETRAINED, pretrained=True, image_size=size)
        if config.optimizer == "genie" and not config.optimizer_settings and not finds_rate:
            config = replace(config, optimizer_settings={"scale_free": True})
    if data.is_table and arguments.backbone is None:
        config = replace(config, backbone="mlp")
    fast = config.fast and data.in_files
    return replace(config, dataset=data.name, test_domains=tested, data_digest=data.digest(), fast=fast)


@contextmanager
def _reported(console: Console, parts: Parts) -> Iterator[Report]:
    """A progress bar on a terminal, and a line for each record everywhere."""
    with progress_bar("training", parts.config.steps, console) as bar:

        def report(done: int, record: Record | None) -> None:
            bar(done=done)
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
        f"{name} {100 * mean(some):.1f} +/- {100 * standard_error(some):.1f} %" for name, some in values.items()
    ]
    failed = "" if len(complete) == len(folders) else f" of {len(folders)}, the others failed"
    return f"Mean of {len(complete)} trials{failed}, with standard error: {', '.join(texts)}."


def chosen_lines(folder: Path) -> list[str]:
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
