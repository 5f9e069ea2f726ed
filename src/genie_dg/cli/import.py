"""Read the result folders of DomainBed into a folder of runs, for the same tables."""

from __future__ import annotations

import argparse

from genie_dg.arguments import path
from genie_dg.check import writable_folder

from ._shared import add_out, tell_problems


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """From where and to where."""
    parser.add_argument("source", type=path, metavar="DOMAINBED_DIR", help="what DomainBed's sweep wrote")
    add_out(parser, "runs", "the folder of runs")


def run(arguments: argparse.Namespace) -> int:
    """Import, and say how much; problems of single files go to stderr."""
    from genie_dg.results.domainbed import import_domainbed

    writable_folder("--out", arguments.out)
    done = import_domainbed(arguments.source, arguments.out)
    tell_problems(done.problems)
    print(f"{done.written} runs imported into {arguments.out}, {done.present} were there already.")
    return 0
