"""Tables of selected accuracies: by test domain, averages over data sets, and for single sources.

A cell with the trials x_1 .. x_n is

    mean ± error = 100·mean(x) ± 100·std(x, ddof=0) / sqrt(n)        [0.1, 0.2, 0.3] -> "20.0 +/- 4.7"

One trial has no error. A row has the trials that any of its runs of the data set has. A cell in which one of
them is missing is missing, with the reason in words; so is an average over it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import NamedTuple

import polars as pl

from genie_dg.statistics import mean, standard_error

from .frame import ResultsError, seconds_per_step
from .select import CASE, METHODS, Case, SelectedRun, select


class TableRow(NamedTuple):
    """What a row of a table stands for."""

    algorithm: str
    optimizer: str
    backbone: str
    protocol: str


@dataclass(frozen=True)
class Cell:
    """One entry.

    Args:
        mean: from 0 to 1; ``None`` when missing.
        error: the standard error over trials; ``None`` for one trial, and for a mean of means.
        trials: how many.
        draws: the fewest and the most runs that a trial could choose from.
        note: why the cell is missing, or what it lacks.
        blank: the cell has no meaning here, such as a source as its own target.
        runs: the identities of the chosen runs, one for each trial; none for a mean of means.
    """

    mean: float | None = None
    error: float | None = None
    trials: int = 0
    draws: tuple[int, int] = (0, 0)
    note: str = ""
    blank: bool = False
    runs: tuple[str, ...] = ()


@dataclass(frozen=True)
class TableLine:
    """One row of a table under its name; ``source`` is the training domain where each has its own line.

    ``pace`` is the mean over the chosen runs of seconds per step, evaluations included, where they were timed.
    """

    row: TableRow
    label: str
    cells: tuple[Cell, ...]
    source: str = ""
    pace: float | None = None


@dataclass(frozen=True)
class Table:
    """One table; ``kind`` is ``domains``, ``averages``, ``sources`` or ``matrix``."""

    kind: str
    title: str
    dataset: str
    method: str
    columns: tuple[str, ...]
    lines: tuple[TableLine, ...]
    notes: tuple[str, ...] = field(default=())


PACE = "s/step"
"""The column that a table without times does not have."""


def extras(line: TableLine) -> dict[str, str]:
    """What a table says of a line besides its accuracies: the columns at its right, by name."""
    real = [cell for cell in line.cells if cell.mean is not None]
    return {
        "trials": count_range([c.trials for c in real]),
        "draws": count_range([bound for c in real for bound in c.draws]),
        PACE: "-" if line.pace is None else f"{line.pace:.2g}",
    }


def count_range(counts: Sequence[int]) -> str:
    """One number, or the smallest and the largest.

    >>> count_range([3, 3]), count_range([18, 20]), count_range([])
    ('3', '18-20', '-')
    """
    if not counts:
        return "-"
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low}-{high}"


_Score = Callable[[SelectedRun], float]
_Ask = Callable[[int], SelectedRun]
"""What was chosen in a trial."""
_NO_RUN = SelectedRun("", missing="no run")


def check_protocols(frame: pl.DataFrame, mix: bool) -> None:
    """Refuse runs of several protocols, whose numbers mean different things, unless ``mix``."""
    protocols = sorted(frame["protocol"].unique())
    if len(protocols) > 1 and not mix:
        raise ResultsError(
            f"These runs follow the protocols {', '.join(protocols[:-1])} and {protocols[-1]}, whose numbers "
            "do not compare; name runs of one protocol, or ask for --mix-protocols (mix=True) to see all."
        )


def tables(frame: pl.DataFrame, method: str = "training-domain", *, mix: bool = False) -> list[Table]:
    """All tables that the runs can fill: for each data set, then the averages.

    Args:
        frame: from `genie_dg.results.frame.load`.
        method: of selection, one of `METHODS`.
        mix: show runs of several protocols, each in rows of its own.
    """
    if not len(frame):
        raise ResultsError("There are no runs; name a folder that holds the folders of runs.")
    check_protocols(frame, mix)
    choices = select(frame, method)
    needed = frame.select(*CASE, "run", "row", "oracle", "config", "timed_step", "seconds")
    sets = [_DataSet(part, method, choices) for part in by_dataset(needed)]
    listed: list[Table] = []
    for one in sets:
        listed += one.by_domain()
        if method != "leave-one-domain-out":
            listed += one.by_source()
    listed += _averages(sets, method, rule_words(frame, method))
    if not listed:
        shapes = frame.select(pl.col("test_domains").list.len(), pl.col("domains").list.len()).unique()
        left_out = sorted(f"{test} of {all_}" for test, all_ in shapes.iter_rows())
        raise ResultsError(
            f"These runs leave out {', '.join(left_out)} domains; a table by {method} needs runs that leave "
            "out one domain" + ("." if method == "leave-one-domain-out" else ", or all but one.")
        )
    return listed


def by_dataset(frame: pl.DataFrame) -> list[pl.DataFrame]:
    """The runs of each data set; sets of one name with other domains are different sets."""
    parts = frame.partition_by("dataset", "domains", maintain_order=True)
    return sorted(parts, key=lambda part: (part["dataset"][0], tuple(part["domains"][0])))


def rule_words(frame: pl.DataFrame, method: str) -> str:
    """How a title names the selection; the oracle with the records that it sees."""
    if method != METHODS[2]:
        return f"{method} selection"
    rules = sorted(frame["oracle"].unique())
    return f"oracle selection ({' or '.join(rules)} checkpoint{', by protocol' * (len(rules) > 1)})"


def cell_of(values: Sequence[float], draws: Sequence[int] = (0,), note: str = "") -> Cell:
    """Trials as a cell.

    >>> cell = cell_of([0.1, 0.2, 0.3])
    >>> print(f"{100 * cell.mean:.1f} +/- {100 * cell.error:.1f}")
    20.0 +/- 4.7
    """
    error = standard_error(values) if len(values) > 1 else None
    return Cell(mean(values), error, len(values), (min(draws), max(draws)), note)


def gather(trials: Sequence[int], ask: _Ask, score: _Score = lambda choice: choice.score) -> Cell:
    """The cell of some trials: missing when one is, with the reasons; else mean and error of the scores."""
    answers = {trial: ask(trial) for trial in trials}
    gone = {trial: choice.missing for trial, choice in answers.items() if choice.missing}
    if gone or not trials:
        return Cell(trials=len(answers) - len(gone), note=_by_reason(gone, len(trials)) or "no run")
    partial = _by_reason({trial: c.note for trial, c in answers.items() if c.note}, len(trials))
    cell = cell_of([score(c) for c in answers.values()], [c.draws for c in answers.values()], partial)
    return replace(cell, runs=tuple(c.run for c in answers.values()))


def mean_cell(cells: Sequence[Cell], what: str) -> Cell:
    """The mean of the means, without an error; missing when one of them is."""
    means = [cell.mean for cell in cells if cell.mean is not None]
    if len(means) < len(cells):
        return Cell(note=f"an average needs every {what}")
    low, high = min(cell.draws[0] for cell in cells), max(cell.draws[1] for cell in cells)
    return Cell(mean(means), None, min(cell.trials for cell in cells), (low, high))


class _DataSet:
    """The runs of one data set, and what was chosen of them."""

    def __init__(self, frame: pl.DataFrame, method: str, choices: Mapping[Case, SelectedRun]) -> None:
        self.frame, self.method, self.choices = frame, method, choices
        self.name, self.domains = str(frame["dataset"][0]), tuple(frame["domains"][0])
        self.words = rule_words(frame, method)
        self.paces = cache(self._paces)
        self.rows, self.left_out = cache(self._rows), cache(self._left_out)
        self.versions, self.lines_by_domain = cache(self._versions), cache(self._lines_by_domain)

    def _rows(self, left_out: int) -> list[tuple[TableRow, str, tuple[int, ...]]]:
        """The rows whose runs leave out so many domains, each with its label and its trials, sorted."""
        part = self.frame.filter(pl.col("test_domains").list.len() == left_out)
        trials: dict[tuple[TableRow, str], set[int]] = {}
        for *names, label, trial in part.select(*TableRow._fields, "row", "trial").unique().iter_rows():
            trials.setdefault((TableRow(*names), label), set()).add(trial)
        return [(row, label, tuple(sorted(some))) for (row, label), some in sorted(trials.items())]

    def _left_out(self) -> list[int]:
        """The domains that some run leaves out alone."""
        alone = self.frame.filter(pl.col("test_domains").list.len() == 1)["test_domains"].list.first()
        return sorted(alone.unique())

    def ask(self, row: TableRow, test: tuple[int, ...]) -> _Ask:
        return lambda trial: self.choices.get(Case(self.name, self.domains, *row, test, trial), _NO_RUN)

    def pace(self, row: TableRow, tests: Sequence[tuple[int, ...]], trials: Sequence[int]) -> float | None:
        """The mean over what was chosen of seconds per step."""
        chosen = [self.ask(row, test)(trial).run for test in tests for trial in trials]
        timed = [pace for run in chosen if (pace := self.paces().get(run)) is not None]
        return mean(timed) if timed else None

    def _paces(self) -> dict[str, float | None]:
        """Seconds per step of each chosen run."""
        chosen = {choice.run for choice in self.choices.values()}
        timed = self.frame.filter(pl.col("run").is_in(list(chosen))).select("run", "timed_step", "seconds")
        return {run: seconds_per_step(steps, seconds) for run, steps, seconds in timed.iter_rows()}

    def _lines_by_domain(self) -> list[TableLine]:
        lines, shown = [], self.left_out()
        for row, label, trials in self.rows(1):
            cells = [gather(trials, self.ask(row, (k,))) for k in shown]
            pace = self.pace(row, [(k,) for k in shown], trials)
            lines.append(TableLine(row, label, (*cells, mean_cell(cells, "test domain")), pace=pace))
        return lines

    def by_domain(self) -> list[Table]:
        """A column for each domain that some run leaves out; a note names the others."""
        lines, shown = self.lines_by_domain(), self.left_out()
        others = ", ".join(name for k, name in enumerate(self.domains) if k not in shown)
        notes = (f"No run leaves out {others}; averages are over the {len(shown)} shown.",) if others else ()
        columns = (*(self.domains[k] for k in shown), "Avg")
        title = f"{self.name}: accuracy on the test domain, {self.words}"
        table = Table(
            "domains", title, self.name, self.method, columns, tuple(lines), (*notes, *self.versions())
        )
        return [table] if lines else []

    def by_source(self) -> list[Table]:
        """Where all domains but one are left out: the mean by source, then for each row source by target."""
        count = len(self.domains)
        if count <= 2:
            return []
        lines, matrices = [], []
        for row, label, trials in self.rows(count - 1):
            cells, matrix = [], []
            for source in range(count):
                ask = self.ask(row, tuple(k for k in range(count) if k != source))
                cells.append(gather(trials, ask))
                entries = [gather(trials, ask, _score_at(at)) for at in range(count - 1)]
                entries.insert(source, Cell(blank=True))
                matrix.append(TableLine(row, label, tuple(entries), self.domains[source]))
            tests = [tuple(k for k in range(count) if k != source) for source in range(count)]
            pace = self.pace(row, tests, trials)
            lines.append(TableLine(row, label, (*cells, mean_cell(cells, "source")), pace=pace))
            title = f"{self.name}: from one source to each target, {self.words}"
            matrices.append(Table("matrix", title, self.name, self.method, self.domains, tuple(matrix)))
        title = f"{self.name}: mean accuracy on the other domains by source, {self.words}"
        columns = (*self.domains, "Avg")
        table = Table("sources", title, self.name, self.method, columns, tuple(lines), self.versions())
        return [table, *matrices] if lines else []

    def mean_over_domains(self, row: TableRow) -> Cell:
        """In each trial the mean over domains, then mean and error over trials."""
        trials = next((trials for known, _, trials in self.rows(1) if known == row), ())
        asks = [self.ask(row, (k,)) for k in self.left_out()]
        by_domain = [gather(trials, ask) for ask in asks]
        if any(cell.mean is None for cell in by_domain):
            return Cell(note="an average needs every test domain in every trial" if trials else "no run")
        means = [mean(ask(trial).score for ask in asks) for trial in trials]
        return cell_of(means, [bound for cell in by_domain for bound in cell.draws])

    def _versions(self) -> tuple[str, ...]:
        """What a reader should know when the runs name several versions of the data."""
        digests = sorted({config.data_digest or "none" for config in self.frame["config"]})
        if len(digests) == 1:
            return ()
        return (f"The runs name {len(digests)} versions of the data (digests {', '.join(digests)}).",)


def _averages(sets: Sequence[_DataSet], method: str, words: str) -> list[Table]:
    """For each data set the mean over domains in each trial, then mean and error over trials."""
    shown = [one for one in sets if one.rows(1)]
    rows = sorted({(row, label) for one in shown for row, label, _ in one.rows(1)})
    lines = []
    for row, label in rows:
        cells = [one.mean_over_domains(row) for one in shown]
        paces = [line.pace for one in shown for line in one.lines_by_domain() if line.row == row and line.pace]
        pace = mean(paces) if paces else None
        lines.append(TableLine(row, label, (*cells, mean_cell(cells, "data set")), pace=pace))
    columns = (*(one.name for one in shown), "Avg")
    notes = tuple(
        f"{one.name}: over {len(one.left_out())} of its {len(one.domains)} domains, the others were never left "
        "out."
        for one in shown
        if len(one.left_out()) < len(one.domains)
    )
    title = f"Averages over test domains, {words}"
    return [Table("averages", title, "", method, columns, tuple(lines), notes)] if lines else []


def _score_at(at: int) -> _Score:
    return lambda choice: choice.scores[at]


def _by_reason(reasons: Mapping[int, str], trials: int) -> str:
    """Reasons in words, with the trials that share each.

    >>> _by_reason({0: "no run", 2: "no run"}, 3)
    'trials 0, 2: no run'
    """
    shared: dict[str, list[str]] = {}
    for trial, reason in reasons.items():
        shared.setdefault(reason, []).append(str(trial))
    if len(shared) == 1 and len(reasons) == trials:
        return next(iter(shared))
    return "; ".join(f"trial{'s' * (len(t) > 1)} {', '.join(t)}: {reason}" for reason, t in shared.items())
