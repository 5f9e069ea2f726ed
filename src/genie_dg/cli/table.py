"""Make tables of the runs of one or more folders: select runs, then mean and standard error over trials."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ._errors import UserError, require


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which runs, how they are selected, and how the table is written."""
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUNS", help="a folder of runs")
    parser.add_argument(
        "--select",
        default="training-domain",
        metavar="METHOD",
        help="training-domain, leave-one-domain-out or oracle (default: %(default)s)",
    )
    parser.add_argument("--format", default="md", help="md, tex or csv (default: %(default)s)")
    parser.add_argument("--mix-protocols", action="store_true", help="show several protocols in one table")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write to a file, not to the screen")


def run(arguments: argparse.Namespace) -> int:
    """Read, select, write; problems of single files go to stderr."""
    require("The table", "bench", {"numpy": "numpy"})
    from genie_dg.results.formats import render
    from genie_dg.results.schema import ResultsError
    from genie_dg.results.store import load
    from genie_dg.results.table import tables

    try:
        runs, problems = load(*arguments.runs)
        for problem in problems:
            print(f"genie-dg: {problem}", file=sys.stderr)
        if not runs:
            raise UserError(
                f"There are no runs in {', '.join(map(str, arguments.runs))}; name a folder that genie-dg "
                "train, sweep or import wrote."
            )
        text = render(tables(runs, arguments.select, mix=arguments.mix_protocols), arguments.format)
    except ResultsError as error:
        raise UserError(str(error)) from error
    if arguments.output is None:
        print(text, end="")
        return 0
    try:
        arguments.output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"{arguments.output} cannot be written ({error.strerror}); name another file."
        ) from error
    return 0
