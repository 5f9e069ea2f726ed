"""List what can be combined: algorithms, optimizers, backbones, data sets."""

from __future__ import annotations

import argparse

from genie_dg.check import one_of

from ._shared import require

KINDS = ("algorithms", "optimizers", "backbones", "data")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One kind, or all."""
    parser.add_argument("kind", nargs="?", default="", help=f"one of {', '.join(KINDS)} (default: all)")


def run(arguments: argparse.Namespace) -> int:
    """Print the tables."""
    require("Listing", "bench", {"numpy": "numpy", "rich": "rich"})
    from rich.console import Console
    from rich.table import Table

    from genie_dg.bench.listing import rows_of

    if arguments.kind:
        one_of("kind", arguments.kind, KINDS)
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=160)
    for kind in [arguments.kind] if arguments.kind else KINDS:
        table = Table(title=kind, title_justify="left", box=None, show_header=False, padding=(0, 2, 0, 0))
        for name, about in rows_of(kind):
            table.add_row(name, about)
        console.print(table)
    return 0
