"""Train one model: an algorithm, an optimizer and a network on all domains but the ones that are left out."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genie_dg.check import InputError

from ._shared import require

if TYPE_CHECKING:
    from rich.console import Console

    from genie_dg.bench.assemble import Parts, Places
    from genie_dg.bench.parallel import World
    from genie_dg.data.domains import DomainSet
    from genie_dg.runs.record import RunConfig


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What changes the science first, then where it happens."""
    parser.add_argument("data", help="the name of a set, a folder <domain>/<class>/<picture>, or a list")
    parser.add_argument("--root", type=Path, help="for published sets, the folder that holds them")
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
    parser.add_argument("--weights", type=Path, help="a local file of pretrained weights")
    parser.add_argument("--no-augment", action="store_true", help="no augmentation of pictures")
    parser.add_argument("--swad", action="store_true", help="average weights densely over the flat part (SWAD)")
    parser.add_argument(
        "--precision", default="float32", help="float32, bfloat16 or float16 (default: %(default)s)"
    )
    parser.add_argument("--trial", type=int, default=0, help="seed of splits, weights, batches (%(default)s)")
    parser.add_argument("--device", default="", help="cpu, cuda, mps (default: cuda where there is one)")
    parser.add_argument(
        "--out", type=Path, default=Path("runs"), help="the folder of runs (default: %(default)s)"
    )
    parser.add_argument("--cache", type=Path, help="decode pictures once into this folder")
    parser.add_argument("--watch", default="", help="also measure updates, osgr, or updates,osgr")
    parser.add_argument(
        "--plugin", action="append", type=Path, default=[], help="a Python file that registers your own rows"
    )


def run(arguments: argparse.Namespace) -> int:
    """Check, assemble, train, and say how right the model is where it was not trained."""
    require("Training", "bench", {"numpy": "numpy", "PIL": "pillow", "rich": "rich", "cv2": "opencv"})
    from genie_dg.bench.train import NotFinite
    from genie_dg.check import InputError
    from genie_dg.data.domains import DataError
    from genie_dg.registry import PluginError, UnknownName
    from genie_dg.runs.folder import Busy, RunError

    try:
        return _train(arguments)
    except (InputError, DataError, PluginError, UnknownName, Busy, RunError, NotFinite) as error:
        raise InputError(str(error)) from error


def _train(arguments: argparse.Namespace) -> int:
    from rich.console import Console

    from genie_dg.bench.assemble import Places
    from genie_dg.bench.parallel import joined
    from genie_dg.bench.request import load_plugin
    from genie_dg.data.registry import open_data

    for plugin in arguments.plugin:
        load_plugin(plugin)
    data = open_data(arguments.data, arguments.root)
    config = config_of(arguments, data)
    places = Places(device_of(arguments.device), arguments.cache, arguments.weights)
    with joined(places.device) as world:
        return _run(config, data, places, arguments, Console(highlight=False, quiet=not world.first), world)


def _run(
    config: RunConfig,
    data: DomainSet,
    places: Places,
    arguments: argparse.Namespace,
    console: Console,
    world: World,
) -> int:
    from genie_dg.bench.assemble import DegenerateWarning, assemble
    from genie_dg.bench.train import train
    from genie_dg.bench.watch import watches_of, watching

    watches = watches_of(arguments.watch)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", DegenerateWarning)
        parts = assemble(config, data, places, world=world)
    for warning in told:
        console.print(f"[yellow]Note:[/] {warning.message}")
    folder = arguments.out / config.run_id
    names = [parts.domains[k] for k in config.test_domains]
    console.print(
        f"{config.algorithm} with {config.optimizer} on {data.name}, {config.backbone}, "
        f"without {', '.join(names)}: {config.steps} steps, in {folder}",
        markup=False,
    )
    with _bar(console, config.steps, parts) as report:
        watched = watching(parts, folder, watches, report) if watches else report
        records = train(parts, folder, watched)
    for line in summary(records, parts):
        console.print(line, markup=False)
    return 0


def config_of(arguments: argparse.Namespace, data: DomainSet) -> Any:
    """The arguments as a configuration; the tables answer for names."""
    from genie_dg.bench.assemble import digest_of
    from genie_dg.bench.request import domain_index, full_names, sort_settings
    from genie_dg.runs.record import RunConfig

    algorithm, optimizer, backbone = full_names(arguments.algorithm, arguments.optimizer, arguments.backbone)
    of_algorithm, of_optimizer = sort_settings(arguments.set, algorithm, optimizer)
    return RunConfig(
        dataset=data.name,
        test_domains=tuple(domain_index(data, text) for text in arguments.test_domain),
        algorithm=algorithm,
        optimizer=optimizer,
        backbone=backbone,
        algorithm_settings=of_algorithm,
        optimizer_settings=of_optimizer,
        batch_size=arguments.batch_size,
        dropout=arguments.dropout,
        pretrained=arguments.pretrained or arguments.weights is not None,
        image_size=arguments.image_size,
        augment=not arguments.no_augment,
        steps=arguments.steps,
        checkpoint_every=arguments.every,
        swad=arguments.swad,
        precision=arguments.precision,
        data_digest=data.digest(),
        weights_digest="" if arguments.weights is None else digest_of(arguments.weights),
        trial_seed=arguments.trial,
    )


def device_of(text: str) -> str:
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
def _bar(console: Any, steps: int, parts: Parts) -> Iterator[Any]:
    """A progress bar with time left on a terminal, and a line for each record everywhere."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("training"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("training", total=steps)

        def report(done: int, record: dict[str, Any] | None) -> None:
            progress.update(task, completed=done)
            if record is not None:
                console.print(line_of(record, parts), markup=False)

        yield report


def line_of(record: dict[str, Any], parts: Parts) -> str:
    """One record as text: validation accuracy of the training domains, accuracy of those left out."""
    validation, unseen = both(record, parts)
    loss = "    -" if record["loss"] is None else f"{record['loss']:.3f}"
    return (
        f"step {record['step']:>6}  loss {loss}  validation {100 * validation:5.1f} %  "
        f"left out {100 * unseen:5.1f} %"
    )


def both(record: dict[str, Any], parts: Parts) -> tuple[float, float]:
    """Mean accuracy on the held-back part of the training domains, and on the domains left out."""
    validation = sum(record["out_acc"][k] for k in parts.sources) / len(parts.sources)
    targets = parts.config.test_domains
    return validation, sum(record["in_acc"][k] for k in targets) / len(targets)


def summary(records: list[dict[str, Any]], parts: Parts) -> list[str]:
    """The record that training-domain validation chooses: the first with the highest validation accuracy."""
    best = max(records, key=lambda record: both(record, parts)[0])
    validation, unseen = both(best, parts)
    lines = [
        f"Chosen by validation: step {best['step']}, validation {100 * validation:.1f} %, "
        f"left out {100 * unseen:.1f} %."
    ]
    width = max(len(name) for name in parts.domains)
    for k, name in enumerate(parts.domains):
        kind = "left out" if k in parts.config.test_domains else "trained on"
        lines.append(
            f"  {name:<{width}}  {kind:<10}  {100 * best['in_acc'][k]:5.1f} % in   "
            f"{100 * best['out_acc'][k]:5.1f} % out"
        )
    return lines
