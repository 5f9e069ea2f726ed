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
    from genie_dg.search_space import Setting, Space

LISTED_KINDS = ("algorithms", "optimizers", "backbones", "data", "protocols", "trackers")
_WITH_SETTINGS = ("algorithms", "optimizers")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One kind, or all."""
    text = f"one of {', '.join(LISTED_KINDS)} (default: all)"
    parser.add_argument("kind", nargs="?", type=some_text, help=text)
    parser.add_argument("--json", action="store_true", help="one JSON document with all settings, for programs")


def run(arguments: argparse.Namespace) -> int:
    """Print the registries."""
    if arguments.kind:
        one_of("kind", arguments.kind, LISTED_KINDS)
    kinds = [arguments.kind] if arguments.kind else LISTED_KINDS
    if arguments.json:
        print(to_json({kind: documents_of(kind) for kind in kinds}))
        return 0
    console = console_of()
    for kind in kinds:
        rows = listed_rows(kind)
        width = max(len(name) for name, _ in rows)
        console.print("\n".join([kind, *(f"{name:<{width}}  {about}" for name, about in rows)]), markup=False)
    return 0


def documents_of(kind: str) -> list[dict[str, object]]:
    """Everything of a kind for programs: names, one line about each, and settings with defaults and kinds."""
    documents: list[dict[str, object]] = []
    rows = registries().get(kind, {})
    for name, about in listed_rows(kind):
        document: dict[str, object] = {"name": name, "about": about}
        if kind in _WITH_SETTINGS:
            document["settings"] = {key: _about(setting) for key, setting in rows[name].space.items()}
        if kind == "algorithms":
            document["one_process"] = rows[name].one_process
        documents.append(document)
    return documents


def _about(setting: Setting) -> dict[str, object]:
    kind = kind_of_setting(setting)
    return {"default": setting.default, "kind": kind, "searched": setting.rule is not None}


def listed_rows(kind: str) -> list[tuple[str, str]]:
    """Names and one line about each of a kind."""
    from genie_dg.models.backbones import listing

    if kind == "backbones":
        return listing()
    rows = registries()[kind].values()
    if kind in _WITH_SETTINGS:
        return [(row.name, f"{row.paper}; {_settings(row.space)}") for row in rows]
    return [(row.name, row.summary) for row in rows]


def registries() -> Mapping[str, Mapping[str, Any]]:
    """The registries by kind; that of backbones lists those of timm in its own way."""
    from genie_dg.algorithms.registry import ALGORITHMS
    from genie_dg.bench.trackers.tracker import TRACKERS
    from genie_dg.data.registry import SETS
    from genie_dg.optim.registry import OPTIMIZERS
    from genie_dg.protocols.registry import PROTOCOLS

    names = [kind for kind in LISTED_KINDS if kind != "backbones"]
    return dict(zip(names, (ALGORITHMS, OPTIMIZERS, SETS, PROTOCOLS, TRACKERS), strict=True))


def _settings(space: Space) -> str:
    """Names and defaults."""
    values = {name: setting.default for name, setting in space.items()}
    shown = [f"{name} {value:g}" if is_number(value) else f"{name} {value}" for name, value in values.items()]
    return ", ".join(shown) or "no settings"
