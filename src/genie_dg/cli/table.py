"""Make tables of the runs of one or more folders: select runs, then mean and standard error over trials."""

from __future__ import annotations

import argparse

from genie_dg.arguments import some_text
from genie_dg.check import printable, writable_file

from ._shared import add_out, add_runs, load_runs, write


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which runs, how they are selected, and how the table is written."""
    add_runs(parser)
    parser.add_argument(
        "--select",
        default="training-domain",
        metavar="METHOD",
        type=some_text,
        help="training-domain, leave-one-domain-out or oracle (default: %(default)s)",
    )
    parser.add_argument("--format", default="md", type=some_text, help="md, tex or csv (default: %(default)s)")
    add_out(parser, "", "the file of the tables", "FILE")


def run(arguments: argparse.Namespace) -> int:
    """Read, select, write."""
    if arguments.out is not None:
        writable_file("--out", arguments.out)
    frame = load_runs(arguments.runs)
    from genie_dg.results.render import render
    from genie_dg.results.tables import tables

    text = render(tables(frame, arguments.select, mix=arguments.mix_protocols), arguments.format)
    if arguments.out is None:
        print(printable(text, keep="\n"), end="")
    else:
        write(arguments.out, text.encode("utf-8"))
    return 0
