"""List what can be combined: algorithms, optimizers, backbones, data sets, protocols, trackers."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from genie_dg.arguments import some_text
from genie_dg.check import is_number, one_of
from genie_dg.search_space import kind_of_setting

from ._shared import console_of, to_json

if TYPE_CHECKING:
    from genie_dg.algorithms.algorithm import AlgorithmRow
    from genie_dg.search_space import Space

_KINDS = ("algorithms", "optimizers", "backbones", "data", "protocols", "trackers")
_DOMAINBED = "domainbed"
"""How each algorithm compares with DomainBed's code: long, and listed only when asked for."""
_WITH_SETTINGS = ("algorithms", "optimizers")
LISTED_KINDS = (*_KINDS, _DOMAINBED)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One kind, or all."""
    parser.add_argument(
        "kind",
        nargs="?",
        type=some_text,
        help=f"one of {', '.join(_KINDS)} (default: all), or "
        f"{_DOMAINBED}: how each algorithm compares with DomainBed's code",
    )
    parser.add_argument("--json", action="store_true", help="one JSON document with all settings, for programs")


def run(arguments: argparse.Namespace) -> int:
    """Print the registries."""
    from rich.markup import escape
    from rich.table import Table

    if arguments.kind:
        one_of("kind", arguments.kind, LISTED_KINDS)
    kinds = [arguments.kind] if arguments.kind else list(_KINDS)
    if arguments.json:
        print(to_json({kind: documents_of(kind) for kind in kinds}))
        return 0
    console = console_of()
    for kind in kinds:
        rows = listed_rows(kind)
        if not console.is_terminal:  # one line for each, however long
            width = max(len(name) for name, _ in rows)
            console.print(
                "\n".join([kind, *(f"{name:<{width}}  {about}" for name, about in rows)]), markup=False
            )
            continue
        table = Table(title=kind, title_justify="left", box=None, show_header=False, padding=(0, 2, 0, 0))
        for name, about in rows:
            table.add_row(escape(name), escape(about))
        console.print(table, soft_wrap=False)
    return 0


def documents_of(kind: str) -> list[dict[str, object]]:
    """Everything of a kind for programs: names, one line about each, and settings with defaults and kinds."""
    documents: list[dict[str, object]] = []
    rows = _registries().get(kind, {})
    for name, about in listed_rows(kind):
        document: dict[str, object] = {"name": name, "about": about}
        if kind in _WITH_SETTINGS:
            document["settings"] = {
                key: {
                    "default": setting.default,
                    "kind": kind_of_setting(setting),
                    "searched": setting.rule is not None,
                }
                for key, setting in rows[name].space.items()
            }
        if kind == "algorithms":
            document["one_process"] = rows[name].one_process
        documents.append(document)
    return documents


def listed_rows(kind: str) -> list[tuple[str, str]]:
    """Names and one line about each of a kind."""
    from genie_dg.models.backbones import listing

    if kind == "backbones":
        return listing()
    if kind == _DOMAINBED:
        return [(row.name, " ".join(agreement(row))) for row in _registries()["algorithms"].values()]
    rows = _registries()[kind].values()
    if kind in _WITH_SETTINGS:
        return [(row.name, f"{row.paper}; {_settings(row.space)}") for row in rows]
    return [(row.name, row.summary) for row in rows]


def _registries() -> Mapping[str, Mapping[str, Any]]:
    from genie_dg.algorithms.registry import ALGORITHMS
    from genie_dg.bench.trackers.tracker import TRACKERS
    from genie_dg.data.registry import SETS
    from genie_dg.optim.registry import OPTIMIZERS
    from genie_dg.protocols.registry import PROTOCOLS

    registries = (ALGORITHMS, OPTIMIZERS, SETS, PROTOCOLS, TRACKERS)
    return dict(zip(("algorithms", "optimizers", "data", "protocols", "trackers"), registries, strict=True))


def agreement(row: AlgorithmRow) -> tuple[str, str]:
    """Whether an algorithm's update is DomainBed's, and what differs."""
    if row.domainbed is None:
        return "differs." if row.differs else "not in DomainBed", row.differs
    return f"to {row.domainbed:.0e}" + (", but:" if row.differs else ""), row.differs


def _settings(space: Space) -> str:
    """Names and defaults."""
    values = {name: setting.default for name, setting in space.items()}
    shown = [f"{name} {value:g}" if is_number(value) else f"{name} {value}" for name, value in values.items()]
    return ", ".join(shown) or "no settings"
