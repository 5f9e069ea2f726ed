"""From the authors' logs to rows of the paper's tables: which run belongs where, and means over runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import mean

from .log_files import LoggedRun

LEVELS = (5000, 10000, 15000)
"""Steps at which the paper's table of times reads a run of 15,000."""
LONG = LEVELS[-1] + 1
ALL_ON = "precondition+noise+mask"
"""The ablation's last row; the others were run with its draws."""
OTHER = "other"
"""The experiment of runs that no table of the paper shows: other networks, signed optimizers, repeats."""


@dataclass(frozen=True)
class Cell:
    """A place in a table, and a run that is behind it, read up to a step."""

    experiment: str
    dataset: str
    row: str
    column: str
    run: LoggedRun
    until: int


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


def cells(runs: Sequence[LoggedRun]) -> Iterator[Cell]:
    """Every place that a finished run has; one in no table of the paper is in `OTHER`."""
    for run in runs:
        if not run.finished:
            continue
        if (
            run.network == "resnet50"
            and not run.one_source
            and run.steps == LONG
            and run.dataset != "DomainNet"
        ):
            for level in LEVELS:
                yield Cell("iterations", run.dataset, f"{run.optimizer}@{level}", run.domain, run, level)
            # the first third is a run of the other tables' length
            if run.trial == run.draw == 0:
                yield Cell("optimizers", run.dataset, f"{run.optimizer}, defaults", run.domain, run, LEVELS[0])
            elif run.dataset == "PACS":
                yield Cell("ablation", run.dataset, ALL_ON, run.domain, run, LEVELS[0])
            continue
        experiment, row = place(run)
        yield Cell(experiment, run.dataset, row, run.domain, run, run.steps)


def place(run: LoggedRun) -> tuple[str, str]:
    """The experiment and the row of a run that is read to its end."""
    drawn = "defaults" if run.trial == run.draw == 0 else "drawn"
    if run.network != "resnet50" or run.optimizer in ("signed GENIE", "Signum"):
        domains = "one source" if run.one_source else "one left out"
        return OTHER, f"{run.algorithm}+{run.optimizer}, {run.network}, {drawn}, {domains}"
    if run.variant:
        return ("sensitivity", f"GENIE {run.variant}") if "=" in run.variant else ("ablation", run.variant)
    if run.one_source:
        return "single-source", f"{run.algorithm}+{run.optimizer}"
    if run.algorithm != "ERM":
        return "integration", f"{run.algorithm}+{run.optimizer}"
    return "optimizers", run.optimizer if drawn == "drawn" else f"{run.optimizer}, defaults"


def averages(runs: Sequence[LoggedRun]) -> list[LoggedAverage]:
    """All numbers in the order of their places; a row's "Avg" is there where every domain is."""
    groups: dict[tuple[str, str, str], dict[str, list[Cell]]] = {}
    for cell in cells(runs):
        columns = groups.setdefault((cell.experiment, cell.dataset, cell.row), {})
        columns.setdefault(cell.column, []).append(cell)
    numbers: list[LoggedAverage] = []
    for key in sorted(groups):
        row = [_average(groups[key][column]) for column in sorted(groups[key])]
        numbers += row
        if len(row) == (6 if key[1] == "DomainNet" else 4):
            numbers.append(_whole(row))
    return numbers


def _average(some: Sequence[Cell]) -> LoggedAverage:
    """The mean over trials, each with the draw that its validation selects."""
    trials: dict[int, dict[int, list[Cell]]] = {}
    for cell in some:
        trials.setdefault(cell.run.trial, {}).setdefault(cell.run.draw, []).append(cell)
    chosen = [max(draws.values(), key=_validation) for draws in trials.values()]
    used = [cell for repeats in chosen for cell in repeats]
    whole = all(cell.until >= cell.run.steps - 1 for cell in used)
    oracle = mean(mean(c.run.oracle().test for c in repeats) for repeats in chosen)
    last = mean(mean(c.run.records[-1].test for c in repeats) for repeats in chosen)
    first = some[0]
    return LoggedAverage(
        first.experiment, first.dataset, first.row, first.column,
        mean(mean(c.run.selected(c.until).test for c in repeats) for repeats in chosen),
        oracle if whole else None, last if whole else None,
        len(used), len(trials), sum(map(len, trials.values())),
        _joined(cell.run.batch for cell in used), _joined(cell.run.lr for cell in used),
        mean(cell.run.seconds(cell.until) for cell in used),
        mean(mean(r.step_seconds for r in cell.run.until(cell.until)[1:]) for cell in used),
    )  # fmt: skip


def _validation(repeats: Sequence[Cell]) -> float:
    return mean(cell.run.selected(cell.until).validation for cell in repeats)


def _joined(numbers: Iterator[float] | Iterator[int]) -> str:
    return " ".join(f"{number:.4g}" for number in sorted(set(numbers)))


def _whole(row: Sequence[LoggedAverage]) -> LoggedAverage:
    """The mean over domains."""
    first = row[0]
    oracles, lasts = [one.oracle for one in row], [one.last for one in row]
    return LoggedAverage(
        first.experiment, first.dataset, first.row, "Avg", mean(one.value for one in row),
        None if None in oracles else mean(x for x in oracles if x is not None),
        None if None in lasts else mean(x for x in lasts if x is not None),
        sum(one.runs for one in row), max(one.trials for one in row), max(one.draws for one in row),
        _joined(float(b) for one in row for b in one.batch.split()),
        _joined(float(rate) for one in row for rate in one.lr.split()),
        mean(one.seconds for one in row), mean(one.step_seconds for one in row),
    )  # fmt: skip
