"""Write one page about the runs of one or more folders: tables, curves, draws, differences; opens offline."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from genie_dg.check import InputError

from ._shared import require


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which runs, and where the page goes."""
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUNS", help="a folder of runs")
    parser.add_argument("--mix-protocols", action="store_true", help="show several protocols on one page")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("report.html"),
        metavar="FILE",
        help="the page (default: %(default)s)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Read, count, write; problems of single files go to stderr and onto the page."""
    require("The report", "bench", {"numpy": "numpy"})
    from genie_dg.report.html import report
    from genie_dg.results.schema import ResultsError
    from genie_dg.results.store import load

    try:
        runs, problems = load(*arguments.runs)
        for problem in problems:
            print(f"genie-dg: {problem}", file=sys.stderr)
        if not runs:
            raise InputError(
                f"There are no runs in {', '.join(map(str, arguments.runs))}; name a folder that genie-dg "
                "train, sweep or import wrote."
            )
        page = report(runs, problems, mix=arguments.mix_protocols)
    except ResultsError as error:
        raise InputError(str(error)) from error
    try:
        arguments.output.write_bytes(page.encode("utf-8", "replace"))
    except OSError as error:
        raise InputError(
            f"{arguments.output} cannot be written ({error.strerror}); name another file."
        ) from error
    print(f"{len(runs)} runs in {arguments.output}; open it in a browser.")
    return 0
