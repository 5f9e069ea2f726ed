"""What a contact sheet is for pictures: a table of numbers at a glance, domains and columns, and what is wrong.

What shifts between domains is seen at once: the mean of a column by domain, in deviations of all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .domains import DataError, DomainSet, TableDomain

FEWEST = 5
"""Rows of a domain at least: a fifth is held back."""
MOST = 40
"""Columns that are listed."""
Rows = list[list[str]]


@dataclass(frozen=True)
class TableSummary:
    """A table at a glance.

    Args:
        domains: a heading, then a line for each domain: its rows, and those of each class.
        columns: a heading, then a line for each column: its kind, missing values, mean and deviation or levels,
            and by domain how far its mean is from that of all rows, in deviations of all rows.
        problems: what is wrong, by kind; "few rows" cannot be trained on.
        notes: what was left out here.
    """

    domains: Rows
    columns: Rows
    problems: dict[str, list[str]]
    notes: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        """Whether it can be trained on."""
        return "few rows" not in self.problems


def summarise(data: DomainSet, most: int = MOST) -> TableSummary:
    """A table of numbers at a glance.

    Args:
        data: from `genie_dg.data.tables.open_table`.
        most: further columns are left out, and a note says so.
    """
    tables = [domain for domain in data.domains if isinstance(domain, TableDomain)]
    if not tables:
        raise DataError(f"{data.name} is not a table; look at it with genie-dg data show.")
    kinds = tables[0].columns
    domains = [["domain", "rows", *data.classes]]
    for table in tables:
        counts = np.bincount(table.labels, minlength=len(data.classes))
        domains.append([table.name, f"{len(table):,}", *(f"{count:,}" for count in counts)])
    lines = [_of_numbers(name, [t.numbers[:, k] for t in tables]) for k, name in enumerate(kinds.numbers)]
    lines += [
        _of_words(name, kinds.levels[k], [t.words[:, k] for t in tables]) for k, name in enumerate(kinds.words)
    ]
    heading = ["column", "kind", "missing", "mean", "deviation", *(table.name for table in tables)]
    left = len(lines) - most
    notes = (f"first {most} of {len(lines)} columns",) if left > 0 else ()
    return TableSummary(domains, [heading, *lines[:most]], _problems(data, tables), notes)


def _of_numbers(name: str, parts: Sequence[np.ndarray[Any, Any]]) -> list[str]:
    every = np.concatenate(parts)
    there = every[~np.isnan(every)]
    missing = f"{len(every) - len(there):,}"
    if not len(there):
        return [name, "number", missing, "-", "-", *("-" for _ in parts)]
    mean, std = float(there.mean()), float(there.std())
    shifts = [_shift(part[~np.isnan(part)], mean, std) for part in parts]
    return [name, "number", missing, f"{mean:.4g}", f"{std:.4g}", *shifts]


def _shift(part: np.ndarray[Any, Any], mean: float, std: float) -> str:
    if not len(part) or std == 0:
        return "-"
    return f"{(float(part.mean()) - mean) / std:+.2f}"


def _of_words(name: str, levels: Sequence[str], parts: Sequence[np.ndarray[Any, Any]]) -> list[str]:
    missing = sum(int((part < 0).sum()) for part in parts)
    here = [f"{len(np.unique(part[part >= 0]))} levels" for part in parts]
    return [name, "text", f"{missing:,}", f"{len(levels)} levels", "-", *here]


def _problems(data: DomainSet, tables: Sequence[TableDomain]) -> dict[str, list[str]]:
    problems: dict[str, list[str]] = {}
    kinds = tables[0].columns
    for table in tables:
        if len(table) < FEWEST:
            problems.setdefault("few rows", []).append(f"{table.name}: {len(table)}, expected {FEWEST} or more")
        for k, name in enumerate(data.classes):
            if not (table.labels == k).any():
                problems.setdefault("missing class", []).append(f"{table.name}: {name}")
    for k, name in enumerate(kinds.numbers):
        every = np.concatenate([table.numbers[:, k] for table in tables])
        if len(np.unique(every[~np.isnan(every)])) < 2:
            problems.setdefault("constant column", []).append(name)
        elif missing := int(np.isnan(every).sum()):
            problems.setdefault("missing values", []).append(f"{name}: {missing:,} of {len(every):,}")
    for k, name in enumerate(kinds.words):
        if len(kinds.levels[k]) > max(FEWEST, len(data) // 2):
            problems.setdefault("almost as many levels as rows", []).append(name)
    return problems
