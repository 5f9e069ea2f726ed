"""Train one model: an algorithm, an optimizer and a network on all domains but the ones that are left out."""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genie_dg.bench.options import add_flags, options_from
from genie_dg.check import InputError, printable

from ._shared import require

if TYPE_CHECKING:
    from rich.console import Console

    from genie_dg.bench.assemble import Parts
    from genie_dg.bench.options import RunOptions
    from genie_dg.bench.parallel import World
    from genie_dg.bench.train import Report
    from genie_dg.data.domains import DomainSet
    from genie_dg.runs.record import Record, RunConfig


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What changes the science first, then where it happens."""
    parser.add_argument("data", help="the name of a set, a folder <domain>/<class>/<picture>, or a list")
    parser.add_argument(
        "--test-domain",
        action="append",
        required=True,
        metavar="DOMAIN",
        help="a domain to leave out, by name or index; may be given several times",
    )
    parser.add_argument(
        "--algorithm", default="ERM", help="(default: %(default)s; see genie-dg list algorithms)"
    )
    parser.add_argument(
        "--optimizer", default="genie", help="(default: %(default)s; see genie-dg list optimizers)"
    )
    parser.add_argument("--backbone", default="cnn", help="(default: %(default)s; see genie-dg list backbones)")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the algorithm or the optimizer, such as lr=0.3; may be given several times",
    )
    parser.add_argument("--steps", type=int, default=300, help="(default: %(default)s)")
    parser.add_argument(
        "--every", type=int, default=50, help="steps between evaluations (default: %(default)s)"
    )
    parser.add_argument("--batch-size", type=int, default=32, help="of each domain (default: %(default)s)")
    parser.add_argument("--dropout", type=float, default=0.0, help="before the head (default: %(default)s)")
    parser.add_argument("--image-size", type=int, default=224, help="pixels (default: %(default)s)")
    parser.add_argument("--pretrained", action="store_true", help="start from published weights")
    parser.add_argument("--no-augment", action="store_true", help="no augmentation of pictures")
    parser.add_argument(
        "--fast", action="store_true", help="OpenCV augments pictures, channels last: quicker, other roundings"
    )
    parser.add_argument("--swad", action="store_true", help="average weights densely over the flat part (SWAD)")
    parser.add_argument(
        "--precision", default="float32", help="float32, bfloat16 or float16 (default: %(default)s)"
    )
    parser.add_argument("--trial", type=int, default=0, help="seed of splits, weights, batches (%(default)s)")
    parser.add_argument(
        "--threads", type=int, default=1, help="of torch; another number, other last digits (%(default)s)"
    )
    add_flags(parser, "train")


def run(arguments: argparse.Namespace) -> int:
    """Check, assemble, train, and say how right the model is where it was not trained."""
    require("Training", "bench", {"numpy": "numpy", "PIL": "pillow", "rich": "rich", "polars": "polars"})
    from rich.console import Console

    from genie_dg.bench.jobs import OpenSets
    from genie_dg.bench.parallel import joined

    options = options_from(arguments)
    opened = OpenSets()
    opened.load_plugins(options)
    data = opened.open(arguments.data, options.root)
    config = config_of(arguments, data, options)
    options = replace(options, device=usable_device(options.device))
    with joined(options.device) as world:
        return _run(config, data, options, Console(highlight=False, quiet=not world.first), world)


def _run(config: RunConfig, data: DomainSet, options: RunOptions, console: Console, world: World) -> int:
    from genie_dg.bench.assemble import DegenerateWarning, assemble
    from genie_dg.bench.jobs import run_parts
    from genie_dg.bench.train import same_kernels
    from genie_dg.runs.folder import DONE

    with warnings.catch_warnings(record=True) as caught, same_kernels(config.threads):
        warnings.simplefilter("always", DegenerateWarning)
        parts = assemble(config, data, options, world=world)
    for warning in caught:
        console.print(f"[yellow]Note:[/] {warning.message}")
    folder = Path(options.out) / config.run_id
    names = [printable(parts.domains[k]) for k in config.test_domains]
    console.print(
        f"{config.algorithm} with {config.optimizer} on {printable(data.name)}, {config.backbone}, "
        f"without {', '.join(names)}: {config.steps} steps, in {folder}",
        markup=False,
    )
    if note := "" if world.size > 1 or (folder / DONE).exists() else more_threads(config, options.device):
        console.print(note, markup=False)
    with _bar(console, parts) as report:
        run_parts(parts, folder, options, report)
    for line in summary(folder) if world.first else ():
        console.print(printable(line), markup=False)
    return 0


def config_of(arguments: argparse.Namespace, data: DomainSet, options: RunOptions) -> RunConfig:
    """The arguments as a configuration; the registries answer for names."""
    from genie_dg.bench.assemble import digest_of
    from genie_dg.bench.request import full_names, sort_settings
    from genie_dg.protocols.tasks import domain_index
    from genie_dg.runs.record import RunConfig

    algorithm, optimizer, backbone = full_names(arguments.algorithm, arguments.optimizer, arguments.backbone)
    of_algorithm, of_optimizer = sort_settings(arguments.set, algorithm, optimizer)
    names = [domain.name for domain in data.domains]
    return RunConfig(
        dataset=data.name,
        test_domains=tuple(domain_index(data.name, names, text) for text in arguments.test_domain),
        algorithm=algorithm,
        optimizer=optimizer,
        backbone=backbone,
        algorithm_settings=of_algorithm,
        optimizer_settings=of_optimizer,
        batch_size=arguments.batch_size,
        dropout=arguments.dropout,
        pretrained=arguments.pretrained or bool(options.weights),
        image_size=arguments.image_size,
        augment=not arguments.no_augment,
        steps=arguments.steps,
        checkpoint_every=arguments.every,
        swad=arguments.swad,
        fast=arguments.fast,
        precision=arguments.precision,
        data_digest=data.digest(),
        weights_digest=digest_of(Path(options.weights)) if options.weights else "",
        trial_seed=arguments.trial,
        threads=arguments.threads,
    )


def more_threads(config: RunConfig, device: str) -> str:
    """A note where one thread leaves cores of this machine idle."""
    from genie_dg.bench.engines.local import cores

    if device != "cpu" or config.threads > 1 or cores() == 1:
        return ""
    return f"1 thread of {cores()} cores; --threads {cores()} is quicker and gives other last digits."


def usable_device(text: str) -> str:
    """The device that was asked for, or the best there is."""
    import torch

    if not text:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=text)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise InputError(f"The device {text!r} cannot be used here ({reason}); try --device cpu.") from error
    return text


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
