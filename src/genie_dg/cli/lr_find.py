"""Find a learning rate: short trainings of ERM at several rates, and the command for the best of them."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from genie_dg.arguments import MANY, path, whole
from genie_dg.bench.options import add_flags, options_from
from genie_dg.check import InputError, either, printable, short, writable_file

from ._shared import progress_bar, require, to_json
from .train import add_task

if TYPE_CHECKING:
    from genie_dg.optim.range_test import SuggestedRate

_PICTURES = (".png", ".pdf", ".svg")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What ``train`` trains, and where the picture goes."""
    add_task(parser, "lr-find")
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


def run(arguments: argparse.Namespace) -> int:
    """Check, search, draw, and say which rate and why."""
    from genie_dg.bench.checks import try_out
    from genie_dg.bench.find_rate import check_config, find_rate
    from genie_dg.bench.jobs import OpenSets
    from genie_dg.bench.request import check_here, usable_device

    from .train import config_of, typed_config

    if arguments.picture is not None:
        _check_picture(arguments.picture)
    options = options_from(arguments)
    check_here(options)
    opened = OpenSets()
    opened.load_plugins(options)
    check_config(typed_config(arguments, options))
    data = opened.open(arguments.data, options)
    config = config_of(arguments, data, options, finds_rate=True)
    try_out([config], {data.name: data})
    options = replace(options, device=usable_device(options.device))
    with progress_bar("finding the rate", unit="steps") as bar:
        rate = find_rate(config, data, options, arguments.steps, lambda steps: bar(done=steps))
    if arguments.picture is not None:
        _draw(rate, arguments.picture, f"{config.optimizer}, {config.backbone}, {data.name}")
    command = _train_command(arguments, rate.lr)
    if arguments.json:
        print(to_json({**asdict(rate), "command": command}))
    else:
        print(f"{rate.reason}\n{command}")
    return 0


def _check_picture(file: Path) -> None:
    """Refuse a file that cannot be written, or drawn, before anything is computed."""
    require("The picture", "report", {"matplotlib": "matplotlib"})
    if file.suffix.lower() not in _PICTURES:
        raise InputError(f"got --out={short(str(file))}; expected a file that ends with {either(_PICTURES)}.")
    writable_file("--out", file)


def _draw(rate: SuggestedRate, file: Path, title: str) -> None:
    """The picture of a search."""
    from genie_dg.results.figures import new_figure
    from genie_dg.results.rates import plot_rates

    figure = new_figure(6.4, 4.0, dpi=150, layout="constrained")
    plot_rates(rate, figure.add_subplot()).set_title(printable(title), loc="left", fontsize="medium")
    figure.savefig(file)


def _train_command(arguments: argparse.Namespace, lr: float) -> str:
    """The call of ``train`` with what was typed here and the rate."""
    parser = argparse.ArgumentParser()
    add_task(parser, "lr-find")
    add_flags(parser, "lr-find")
    words = ["genie-dg", "train", arguments.data]
    for action in parser._actions:
        typed = getattr(arguments, action.dest, None)
        if not action.option_strings or typed is None:
            continue
        flag = action.option_strings[-1]
        values = typed if isinstance(typed, list) else [typed]
        words += [flag] if action.nargs == 0 else [word for value in values for word in (flag, str(value))]
    return shlex.join([*words, "--lr", f"{lr:g}"])
