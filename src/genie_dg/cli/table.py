"""Make tables of the runs of one or more folders: select runs, then mean and standard error over trials."""

from __future__ import annotations

import argparse
from pathlib import Path

from genie_dg.check import printable

from ._shared import add_runs, load_runs, write


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which runs, how they are selected, and how the table is written."""
    add_runs(parser)
    parser.add_argument(
        "--select",
        default="training-domain",
        metavar="METHOD",
        help="training-domain, leave-one-domain-out or oracle (default: %(default)s)",
    )
    parser.add_argument("--format", default="md", help="md, tex or csv (default: %(default)s)")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write to a file, not to the screen")


def run(arguments: argparse.Namespace) -> int:
    """Read, select, write."""
    frame = load_runs("The table", arguments.runs)
    from genie_dg.results.render import render
    from genie_dg.results.tables import tables

    text = render(tables(frame, arguments.select, mix=arguments.mix_protocols), arguments.format)
    if arguments.output is None:
        print(printable(text, keep="\n"), end="")
    else:
        write(arguments.output, text.encode("utf-8"))
    return 0
