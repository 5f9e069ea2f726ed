"""List what can be combined: algorithms, optimizers, backbones, data sets."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from genie_dg.check import is_number, one_of

from ._shared import require

if TYPE_CHECKING:
    from genie_dg.search_space import Space

KINDS = ("algorithms", "optimizers", "backbones", "data")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One kind, or all."""
    parser.add_argument("kind", nargs="?", default="", help=f"one of {', '.join(KINDS)} (default: all)")


def run(arguments: argparse.Namespace) -> int:
    """Print the registries."""
    require("Listing", "bench", {"numpy": "numpy", "rich": "rich"})
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    if arguments.kind:
        one_of("kind", arguments.kind, KINDS)
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=160)
    for kind in [arguments.kind] if arguments.kind else KINDS:
        table = Table(title=kind, title_justify="left", box=None, show_header=False, padding=(0, 2, 0, 0))
        for name, about in rows_of(kind):
            table.add_row(escape(name), escape(about))
        console.print(table)
    return 0


def rows_of(kind: str) -> list[tuple[str, str]]:
    """Names and one line about each: ``kind`` is algorithms, optimizers, backbones or data."""
    from genie_dg.algorithms.registry import ALGORITHMS
    from genie_dg.data.registry import SETS
    from genie_dg.models.backbones import listing as list_backbones
    from genie_dg.optim.registry import OPTIMIZERS

    if kind == "algorithms":
        return [(row.name, f"{row.paper}; {_settings(row.space)}") for row in ALGORITHMS.values()]
    if kind == "optimizers":
        return [(row.name, f"{row.paper}; {_settings(row.space)}") for row in OPTIMIZERS.values()]
    if kind == "backbones":
        return list_backbones()
    return [(row.name, row.summary) for row in SETS.values()]


def _settings(space: Space) -> str:
    """Names and defaults."""
    values = {name: setting.default for name, setting in space.items()}
    shown = [f"{name} {value:g}" if is_number(value) else f"{name} {value}" for name, value in values.items()]
    return ", ".join(shown) or "no settings"
