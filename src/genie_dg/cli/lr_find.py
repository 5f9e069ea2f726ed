"""Find a learning rate: short trainings of ERM at several rates, and the command for the best of them."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genie_dg.arguments import MANY, path, whole
from genie_dg.bench.options import add_flags, options_from
from genie_dg.check import InputError, either, printable, short, writable_file

from ._shared import require, to_json
from .train import add_task

if TYPE_CHECKING:
    from genie_dg.optim.range_test import SuggestedRate

FORMATS = (".png", ".pdf", ".svg")
OF_TRAINING = {"lr": None, "every": 1, "swad": False, "precision": "float32"}
"""What a configuration needs besides, and a search for the rate does not."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What ``train`` trains, and where the picture goes."""
    add_task(parser)
    parser.add_argument(
        "--steps",
        type=whole(2, MANY),
        default=100,
        help="of each short training; more cost more and suit a long training better (default: %(default)s)",
    )
    parser.add_argument(
        "-o",
        "--out",
        dest="picture",
        type=path,
        metavar="FILE",
        help="a picture of loss against rate (default: none)",
    )
    parser.add_argument("--json", action="store_true", help="as one JSON document")
    add_flags(parser, "lr-find")
    parser.set_defaults(**OF_TRAINING)


def run(arguments: argparse.Namespace) -> int:
    """Check, search, draw, and say which rate and why."""
    require(
        "Finding a rate", "bench", {"numpy": "numpy", "PIL": "pillow", "rich": "rich", "msgspec": "msgspec"}
    )
    from genie_dg.bench.find_rate import check_config, find_rate
    from genie_dg.bench.jobs import OpenSets
    from genie_dg.bench.request import check_here, usable_device
    from genie_dg.bench.trial import try_out

    from .train import asked_for, config_of

    if arguments.picture is not None:
        check_picture(arguments.picture)
    options = options_from(arguments)
    check_here(options)
    opened = OpenSets()
    opened.load_plugins(options)
    check_config(asked_for(arguments, options))
    data = opened.open(arguments.data, options)
    config = config_of(arguments, data, options, finds_rate=True)
    try_out([config], {data.name: data})
    options = replace(options, device=usable_device(options.device))
    with _counter() as report:
        found = find_rate(config, data, options, arguments.steps, report)
    if arguments.picture is not None:
        draw(found, arguments.picture, f"{config.optimizer}, {config.backbone}, {data.name}")
    command = train_command(arguments, found.lr)
    if arguments.json:
        print(to_json({**asdict(found), "command": command}))
    else:
        print(f"{found.reason}\n{command}")
    return 0


def check_picture(file: Path) -> None:
    """Refuse a file that cannot be written, or drawn, before anything is computed."""
    require("The picture", "report", {"matplotlib": "matplotlib"})
    if file.suffix.lower() not in FORMATS:
        raise InputError(f"got --out={short(str(file))}; expected a file that ends with {either(FORMATS)}.")
    writable_file("--out", file)


def draw(found: SuggestedRate, file: Path, title: str) -> None:
    """The picture of a search."""
    from genie_dg.results.figures import new_figure
    from genie_dg.results.rates import RateData, plot_rates

    data = RateData(found.lr, found.lrs, found.losses, found.first_loss, found.sweep_lrs, found.sweep_losses)
    figure = new_figure(6.4, 4.0, dpi=150, layout="constrained")
    plot_rates(data, figure.add_subplot()).set_title(printable(title), loc="left", fontsize="medium")
    figure.savefig(file)


def train_command(arguments: argparse.Namespace, lr: float) -> str:
    """The call of ``train`` with what was typed here and the rate."""
    parser = argparse.ArgumentParser()
    add_task(parser)
    add_flags(parser, "lr-find")
    words = ["genie-dg", "train", arguments.data]
    for action in parser._actions:
        value = getattr(arguments, action.dest, None)
        if not action.option_strings or value in (None, action.default):
            continue
        if value is True:
            words.append(action.option_strings[-1])
        for one in value if isinstance(value, list) else [] if value is True else [value]:
            words += [action.option_strings[-1], str(one)]
    return shlex.join([*words, "--lr", f"{lr:g}"])


@contextmanager
def _counter() -> Iterator[Callable[[int], None]]:
    """The number of steps so far, on stderr, on a terminal only; how many there will be nobody knows."""
    from rich.console import Console
    from rich.progress import Progress, TextColumn

    console = Console(stderr=True)
    column: Any = TextColumn("finding the rate: {task.completed:.0f} steps")
    with Progress(column, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("finding the rate", total=None)
        yield lambda steps: progress.update(task, completed=steps)
