"""Read the result folders of DomainBed into a folder of runs, for the same tables."""

from __future__ import annotations

import argparse
from pathlib import Path

from ._shared import require, tell_problems


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """From where and to where."""
    parser.add_argument("source", type=Path, metavar="DOMAINBED_DIR", help="what DomainBed's sweep wrote")
    parser.add_argument(
        "--out", type=Path, default=Path("runs"), help="the folder of runs (default: %(default)s)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Import, and say how much; problems of single files go to stderr."""
    require("Importing", "bench", {"numpy": "numpy", "polars": "polars", "msgspec": "msgspec"})
    from genie_dg.results.domainbed import import_domainbed

    done = import_domainbed(arguments.source, arguments.out)
    tell_problems(done.problems)
    print(f"{done.written} runs imported into {arguments.out}, {done.present} were there already.")
    return 0
