"""Find a learning rate: short trainings of ERM at several rates, and the best of them with its reason."""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace

from genie_dg.arguments import MANY, whole
from genie_dg.bench.options import add_flags, options_from

from ._shared import progress_bar, to_json
from .train import add_task


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What ``train`` trains, and how long."""
    add_task(parser, "lr-find")
    parser.add_argument(
        "--steps",
        type=whole(2, MANY),
        default=100,
        help="of each short training; more cost more and suit a long training better (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="as one JSON document")
    add_flags(parser, "lr-find")


def run(arguments: argparse.Namespace) -> int:
    """Check, search, and say which rate and why."""
    from genie_dg.bench.checks import try_out
    from genie_dg.bench.find_rate import check_config, find_rate
    from genie_dg.bench.jobs import OpenSets
    from genie_dg.bench.request import check_here, usable_device

    from .train import config_of, typed_config

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
    train = f"Train with it: genie-dg train, the same words and --lr {rate.lr:g}."
    print(to_json(asdict(rate)) if arguments.json else f"{rate.reason}\n{train}")
    return 0
