"""The four registries as lines of text."""

from __future__ import annotations

from genie_dg.algorithms.registry import ALGORITHMS
from genie_dg.data.registry import SETS
from genie_dg.models.backbones import listing as list_backbones
from genie_dg.optim.registry import OPTIMIZERS
from genie_dg.search_space import Space


def rows_of(kind: str) -> list[tuple[str, str]]:
    """Names and one line about each: ``kind`` is algorithms, optimizers, backbones or data."""
    if kind == "algorithms":
        return [(row.name, f"{row.paper}; {_settings(row.space)}") for row in ALGORITHMS.values()]
    if kind == "optimizers":
        return [(row.name, f"{row.paper}; {_settings(row.space)}") for row in OPTIMIZERS.values()]
    if kind == "backbones":
        return list_backbones()
    return [(row.name, row.summary) for row in SETS.values()]


def _settings(space: Space) -> str:
    """Names and defaults."""
    shown = []
    for name, setting in space.items():
        value = setting.default
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        shown.append(f"{name} {value:g}" if number else f"{name} {value}")
    return ", ".join(shown) or "no settings"
