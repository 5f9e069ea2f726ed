"""Write one page about the runs of one or more folders: tables, curves, draws, differences; opens offline."""

from __future__ import annotations

import argparse

from genie_dg.check import printable, writable_file

from ._shared import add_out, add_runs, load_runs, write


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which runs, and where the page goes."""
    add_runs(parser)
    add_out(parser, "report.html", "the page", "FILE")


def run(arguments: argparse.Namespace) -> int:
    """Read, count, write; problems of single files go to stderr and onto the page."""
    writable_file("--out", arguments.out)
    problems: list[str] = []
    frame = load_runs(arguments.runs, problems)
    from genie_dg.results.page import report

    page = report(frame, problems, mix=arguments.mix_protocols)
    write(arguments.out, page.encode("utf-8", "replace"))
    print(printable(f"{len(frame)} runs in {arguments.out}; open it in a browser."))
    return 0
