"""The paper's tables of time and accuracy after a third, two thirds and all of the steps."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

import polars as pl

from .experiments import Experiment
from .logged import committed
from .published import PRINTED, PUBLISHED
from .request import Request
from .runs import GridRuns, accuracies, seconds_until, until
from .sourced import COMPUTED, LOGGED, MEASURED, QUOTED, Numbers, SourcedNumber, Tables, measured, quoted


def iteration_tables(experiment: Experiment, parts: Sequence[GridRuns], request: Request) -> Tables:
    """Time and accuracy at a third, two thirds and the end; times divided by Adam's at the same level.

    Seconds are those that the runs noted: loading and evaluation are part of them, as of the paper's.
    """
    levels = experiment.levels_of(request.scale, request.data)
    numbers = [number for part in parts for number in _measured_levels(part.frame, levels)]
    numbers += _quoted_levels() + _logged_levels()
    order = [_level(PRINTED[o], n) for o in ("sgd", "adam", "sam", "genie") for n in range(3)]
    origins = (MEASURED, QUOTED, COMPUTED, LOGGED)
    numbers.sort(key=lambda number: (order.index(number.row), origins.index(number.origin)))
    whole = PUBLISHED["iterations", ""]
    tables: Tables = [(f"iterations: time and average accuracy ({whole.place})", numbers)]
    for (name, dataset), table in PUBLISHED.items():
        if name == "iterations" and dataset:
            numbers = quoted(table) + logged_times(dataset)
            tables.append((f"iterations: {dataset} by test domain ({table.place})", numbers))
    return tables


def _measured_levels(frame: pl.DataFrame, levels: Sequence[int]) -> Numbers:
    numbers: Numbers = []
    folders = {
        optimizer: frame.filter(pl.col("optimizer") == optimizer)["folder"]
        for optimizer in frame["optimizer"].unique(maintain_order=True)
    }
    for n, level in enumerate(levels):
        times = {o: mean(seconds_until(folder, level) for folder in some) for o, some in folders.items()}
        for dataset, rows in accuracies(until(frame, level)).items():
            for (_, optimizer), columns in rows.items():
                row, spent = _level(PRINTED[optimizer], n), times[optimizer]
                numbers.append(SourcedNumber(row, "steps", MEASURED, level, digits=0))
                numbers.append(SourcedNumber(row, "s per step", MEASURED, spent / (level + 1), digits=4))
                if "adam" in times:
                    ratio = spent / times["adam"]
                    numbers.append(SourcedNumber(row, "time / Adam's", MEASURED, ratio, digits=2))
                numbers.append(measured(row, dataset, columns["Avg"], dataset))
    return numbers


def _quoted_levels() -> Numbers:
    numbers: Numbers = []
    table = PUBLISHED["iterations", ""]
    for name, values in table.rows.items():
        optimizer, _, steps = name.partition("@")
        row, place = _level(optimizer, int(steps) // 5000 - 1), table.place
        numbers.append(SourcedNumber(row, "steps", QUOTED, float(steps), place=place, digits=0))
        for column, cell in zip(table.columns, values, strict=True):
            digits = 0 if column == "Time" else 1
            numbers.append(SourcedNumber(row, column, QUOTED, cell.value, None, place, digits=digits))
        ratio = values[0].value / table.cell(f"Adam@{steps}", "Time").value
        numbers.append(SourcedNumber(row, "time / Adam's", COMPUTED, ratio, place=place, digits=2))
    return numbers


def logged_times(dataset: str) -> Numbers:
    """What the authors' logs say for the table of times of a data set: as printed, and pictures and steps."""
    domains = PUBLISHED["optimizers", dataset].columns[:-1]
    numbers: Numbers = []
    for one in committed().table("iterations", dataset):
        at = "" if one.column == "Avg" else f"[{domains.index(one.column)}]"
        facts = {"Time": (one.seconds, 0), "Acc": (one.value, 1), "s per step": (one.step_seconds, 3)}
        if at:
            facts["pictures of a domain"] = (float(one.batch), 0)
        numbers += [
            SourcedNumber(
                one.row, name + at, LOGGED, value, None, committed().place, one.trials, one.draws,
                digits=digits, runs=one.runs,
            )
            for name, (value, digits) in facts.items()
        ]  # fmt: skip
    order = [*(f"{name}[{k}]" for name in ("Time", "Acc") for k in range(4)), "Time", "Acc"]
    places = {column: place for place, column in enumerate(order)}
    return sorted(numbers, key=lambda number: places.get(number.column, len(order)))


def _logged_levels() -> Numbers:
    """What the logs say for the main table of times: the mean time over its data sets, and the accuracies."""
    table, numbers = PUBLISHED["iterations", ""], Numbers()
    for name in table.rows:
        optimizer, _, steps = name.partition("@")
        row = _level(optimizer, int(steps) // 5000 - 1)
        cells = {dataset: committed().cell("iterations", dataset, name) for dataset in table.columns[1:]}
        facts = {"Time": (mean(cell.seconds for cell in cells.values()), 0)}
        facts |= {dataset: (cell.value, 1) for dataset, cell in cells.items()}
        facts["s per step, PACS"] = (cells["PACS"].step_seconds, 3)
        numbers += [
            SourcedNumber(row, column, LOGGED, value, None, committed().place, digits=digits, runs=4)
            for column, (value, digits) in facts.items()
        ]
    return numbers


def _level(optimizer: str, n: int) -> str:
    return f"{optimizer}, {('1/3', '2/3', 'all')[n]} of the steps"
