"""What the authors' own logs say: numbers of the third origin, beside quoted and measured ones.

The folder ``logged`` holds what its script ``extract_logs.py`` extracted from a clone of their repository:
``source.csv`` names the commit, ``runs.csv`` has a line for each run, ``averages.csv`` one for each number of a
table, ``osgr.csv`` the curves of the OSGR figure and ``sharpness.csv`` what they logged as sharpness, which no
page shows.

A number of the paper is mostly the mean of three trials; the repository has one run of each, or a few, mostly
the best one. So a logged number beside a quoted one may be higher, and says what one run gave.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "logged"
NAMES = ("source.csv", "runs.csv", "averages.csv", "osgr.csv")
"""The files of the folder."""


@dataclass(frozen=True)
class LoggedAverage:
    """One number: the mean over trials of what is selected in each.

    Args:
        value: accuracy in percent under training-domain selection of the evaluation and, where one trial has
            several draws, of the draw; repeats of a draw are averaged. ``oracle`` and ``last`` are the same
            runs under the other two ways, where a run is read to its end.
        seconds: by the clock, with evaluations; ``step_seconds`` is of a step alone.
        runs: behind the number, ``trials`` and ``draws`` how many different ones.
        batch: pictures of a source domain in a step; several are joined by spaces, as are the rates.
    """

    experiment: str
    dataset: str
    row: str
    column: str
    value: float
    oracle: float | None
    last: float | None
    runs: int
    trials: int
    draws: int
    batch: str
    lr: str
    seconds: float
    step_seconds: float


@dataclass(frozen=True)
class LoggedCurve:
    """What one run logged as OSGR, averaged over 200 steps, and the size of its gradients.

    Args:
        domain: the one left out.
        batch: pictures of each source domain in a step, ``pictures`` of all.
        sizes: root mean squares over the parameters of a gradient, NaN where the logged digits do not tell.
    """

    domain: str
    optimizer: str
    batch: int
    pictures: int
    steps: tuple[float, ...]
    values: tuple[float, ...]
    sizes: tuple[float, ...]


@dataclass(frozen=True)
class Logged:
    """All that was read from one clone."""

    repository: str
    commit: str
    logs: int
    finished: int
    averages: tuple[LoggedAverage, ...]
    runs: tuple[dict[str, str], ...]
    curves: tuple[LoggedCurve, ...]

    @property
    def place(self) -> str:
        """The repository and its commit."""
        return f"{self.repository} at {self.commit[:7]}"

    def table(self, experiment: str, dataset: str) -> list[LoggedAverage]:
        """The numbers of one table."""
        return [one for one in self.averages if (one.experiment, one.dataset) == (experiment, dataset)]

    def datasets(self, experiment: str) -> list[str]:
        """Data sets that an experiment has numbers for."""
        return list(dict.fromkeys(one.dataset for one in self.averages if one.experiment == experiment))

    def cell(self, experiment: str, dataset: str, row: str, column: str = "Avg") -> LoggedAverage:
        """One number."""
        return next(one for one in self.table(experiment, dataset) if (one.row, one.column) == (row, column))


def read_logged(texts: Mapping[str, str]) -> Logged:
    """The files, by name, as numbers."""
    lines = {name: list(csv.DictReader(texts[name].splitlines())) for name in NAMES}
    (source,) = lines["source.csv"]
    return Logged(
        source["repository"], source["commit"], int(source["logs"]), int(source["finished"]),
        tuple(map(_average, lines["averages.csv"])), tuple(lines["runs.csv"]), _curves(lines["osgr.csv"]),
    )  # fmt: skip


@cache
def committed() -> Logged:
    """What the package carries."""
    return read_logged({name: (FOLDER / name).read_text(encoding="utf-8") for name in NAMES})


TYPES = {field.name: field.type for field in fields(LoggedAverage)}


def _average(line: Mapping[str, str]) -> LoggedAverage:
    cells: dict[str, Any] = {}
    for name, text in line.items():
        if TYPES[name] == "str":
            cells[name] = text
        elif TYPES[name] == "int":
            cells[name] = int(text)
        else:
            cells[name] = float(text) if text else None
    return LoggedAverage(**cells)


def _curves(lines: list[dict[str, str]]) -> tuple[LoggedCurve, ...]:
    points: dict[tuple[str, str, int, int], list[tuple[float, float, float]]] = {}
    for line in lines:
        key = line["domain"], line["optimizer"], int(line["batch"]), int(line["pictures"])
        size = float(line["gradient"] or "nan")
        points.setdefault(key, []).append((float(line["step"]), float(line["osgr"]), size))
    return tuple(
        LoggedCurve(*key, *(tuple(column) for column in zip(*rows, strict=True)))
        for key, rows in points.items()
    )
