"""A table of means over trials, each with its interval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .verdict import interval_of


@dataclass(frozen=True)
class NumbersTable:
    """A table of means over trials, each with half the width of its 95 % interval."""

    title: str
    columns: tuple[str, ...]
    rows: dict[str, list[tuple[float, float]]]

    def markdown(self) -> str:
        """As Markdown; a cell without two numbers is a dash."""
        lines = [["", *self.columns], ["---"] * (len(self.columns) + 1)]
        for name, cells in self.rows.items():
            shown = [f"{mean:.3f} ± {half:.3f}" if math.isfinite(half) else "-" for mean, half in cells]
            lines.append([name, *shown])
        return f"{self.title}:\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def as_json(self) -> dict[str, object]:
        """Plain data; a number that does not exist is null."""
        rows = {
            name: [[x if math.isfinite(x) else None for x in pair] for pair in cells]
            for name, cells in self.rows.items()
        }
        return {"title": self.title, "columns": list(self.columns), "rows": rows}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> NumbersTable:
        """What `as_json` gave; null is a number that does not exist."""

        def number(x: float | None) -> float:
            return math.nan if x is None else x

        rows = {
            name: [(number(mean), number(half)) for mean, half in cells]
            for name, cells in plain["rows"].items()
        }
        return cls(plain["title"], tuple(plain["columns"]), rows)


def cell(numbers: Sequence[float]) -> tuple[float, float]:
    """Mean and half width over the numbers that exist.

    >>> [round(x, 3) for x in cell([1.0, 2.0, 3.0, math.nan])]
    [2.0, 2.484]
    """
    finite = [number for number in numbers if math.isfinite(number)]
    if len(finite) < 2:
        return math.nan, math.nan
    interval = interval_of(finite)
    return interval.value, interval.value - interval.low
