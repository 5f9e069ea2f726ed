"""Tables of what was measured along training runs: means over trials, each with its interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean

from .numbers_table import NumbersTable, cell
from .rules import RULES
from .trajectories import RunNumbers
from .trajectory_points import GRANULARITIES

PUBLISHED = ("SGD", "Adam", "SAM", "GENIE")
"""The optimizers of the paper's figures."""

Runs = dict[str, list[RunNumbers]]
"""By label, one for each trial."""

Value = Callable[[RunNumbers], float]

MEASURED = {
    "SGD": "measured/sgd/product",
    "Adam": "measured/adam/product",
    "trust": "measured/svag/product",
    "eq. 5 in closed form": "measured/eq. 5",
}
"""What the paper's formulas give at the measured moments, by the name that tables show."""

OF_RUNS = {
    "accuracy": "accuracy",
    "OSGR by the definition": "definition",
    "sharpness along training": "sharpness",
    "sharpness at the end": "end/sharpness",
    "class separation": "separation",
}
"""Numbers of a run with its own optimizer, by the column that shows them."""

SPANS = ("step", "window")


def value(name: str) -> Value:
    """The function that takes a number out of what was measured along a run."""
    return lambda run: run.numbers[name]


def over_runs(runs: Runs, of: Value, labels: Sequence[str] = PUBLISHED) -> list[float]:
    """For each trial the mean over runs of the numbers that exist; NaN where none does."""
    trials = zip(*(runs[label] for label in labels), strict=True)
    means = []
    for trial in trials:
        kept = [number for number in map(of, trial) if math.isfinite(number)]
        means.append(fmean(kept) if kept else math.nan)
    return means


def tables(runs: Runs) -> dict[str, NumbersTable]:
    """OSGR at the same weights by rule and run, Table 1's parts, balance in both senses, and the runs."""
    return {
        "osgr-theorem": _by_run(
            runs,
            "OSGR in the theorem's form, by preconditioner, at the same weights",
            {rule: f"theorem/{rule}" for rule in RULES}
            | {f"{name}, measured moments": key for name, key in MEASURED.items()},
        ),
        "osgr-step": _by_run(
            runs,
            "OSGR to first order of each rule's next step, momentum included, at the same weights",
            {rule: f"step/{rule}" for rule in RULES},
        ),
        "table-1": _averaged(
            runs,
            "Table 1 measured: OSGR with a part of the preconditioner alone, and with both",
            ("convergence", "alignment", "product"),
            {"Adam": "measured/adam/{}", "GENIE (eq. 5)": "measured/genie/{}"},
        ),
        "gap": _averaged(
            runs,
            "Gini coefficient of the shares of the gap 1 - R, mean over the weights of four optimizers",
            GRANULARITIES,
            {rule: f"gap/{{}}/{rule}" for rule in (*RULES, "released, one mask")},
        ),
        "moves": _own(
            runs,
            "Gini coefficient of weight changes, over one step and over a window of steps",
            {f"{unit}, {span}": f"moves/{span}/{unit}" for span in SPANS for unit in GRANULARITIES},
        ),
        "runs": _own(runs, "The runs themselves", OF_RUNS),
    }


def _by_run(runs: Runs, title: str, rows: dict[str, str]) -> NumbersTable:
    """A column for the weights of each optimizer's runs."""
    columns = tuple(f"weights of {label}" for label in PUBLISHED)
    cells = {
        row: [cell([run.numbers[name] for run in runs[label]]) for label in PUBLISHED]
        for row, name in rows.items()
    }
    return NumbersTable(title, columns, cells)


def _averaged(runs: Runs, title: str, columns: Sequence[str], rows: dict[str, str]) -> NumbersTable:
    """Means over the weights of all four; a row names its numbers with a place for the column."""
    cells = {
        row: [cell(over_runs(runs, value(name.format(column)))) for column in columns]
        for row, name in rows.items()
    }
    return NumbersTable(title, tuple(columns), cells)


def _own(runs: Runs, title: str, columns: dict[str, str]) -> NumbersTable:
    """A row for each optimizer's own runs."""
    cells = {
        label: [cell([run.numbers[name] for run in some]) for name in columns.values()]
        for label, some in runs.items()
    }
    return NumbersTable(title, tuple(columns), cells)
