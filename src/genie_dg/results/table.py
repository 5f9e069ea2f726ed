"""Tables of selected accuracies: by test domain, averages over data sets, and for single sources.

A cell with the trials x_1 .. x_n is

    mean ± error = 100·mean(x) ± 100·std(x, ddof=0) / sqrt(n)        [0.1, 0.2, 0.3] -> "20.0 +/- 4.7"

A row has the trials that any of its runs of the data set has. A cell in which one of them is missing is
missing, with the reason in words; so is an average over it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from .schema import ResultsError, Run
from .select import METHODS, ORACLE, Case, Chosen, Missing, Row, row_of_run, select

Choices = Mapping[Case, Chosen | Missing]


@dataclass(frozen=True)
class Cell:
    """One entry.

    Args:
        mean: from 0 to 1; ``None`` when missing.
        error: the standard error over trials; ``None`` for a mean of means.
        trials: how many.
        draws: the fewest and the most runs that a trial could choose from.
        note: why the cell is missing, or what it lacks.
        blank: the cell has no meaning here, such as a source as its own target.
    """

    mean: float | None = None
    error: float | None = None
    trials: int = 0
    draws: tuple[int, int] = (0, 0)
    note: str = ""
    blank: bool = False


@dataclass(frozen=True)
class Line:
    """One row of a table; ``source`` is the training domain where each has its own line."""

    row: Row
    cells: tuple[Cell, ...]
    source: str = ""


@dataclass(frozen=True)
class Table:
    """One table; ``kind`` is ``domains``, ``averages``, ``sources`` or ``matrix``."""

    kind: str
    title: str
    dataset: str
    method: str
    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = field(default=())


Ask = Callable[[int], Chosen | Missing]
"""What was chosen in a trial."""


def tables(runs: Sequence[Run], method: str = "training-domain", *, mix: bool = False) -> list[Table]:
    """All tables that the runs can fill: for each data set, then the averages.

    Args:
        runs: from `genie_dg.results.store.load`.
        method: of selection, one of `METHODS`.
        mix: show runs of several protocols, each in rows of its own.
    """
    if not runs:
        raise ResultsError("There are no runs; name a folder that holds the folders of runs.")
    protocols = sorted({run.config.protocol for run in runs})
    if len(protocols) > 1 and not mix:
        raise ResultsError(
            f"These runs follow the protocols {', '.join(protocols[:-1])} and {protocols[-1]}, whose numbers "
            "do not compare; name runs of one protocol, or ask for --mix-protocols (mix=True) to see all."
        )
    choices = select(runs, method)
    sets: dict[tuple[str, tuple[str, ...]], list[Run]] = {}
    for run in runs:
        sets.setdefault((run.config.dataset, run.domains), []).append(run)
    found: list[Table] = []
    for (dataset, domains), members in sorted(sets.items()):
        found += _by_domain(dataset, domains, members, method, choices)
        if method != "leave-one-domain-out":
            found += _by_source(dataset, domains, members, method, choices)
    found += _averages(sets, [t for t in found if t.kind == "domains"], method, choices)
    if not found:
        shapes = sorted({f"{len(run.config.test_domains)} of {len(run.domains)}" for run in runs})
        raise ResultsError(
            f"These runs leave out {', '.join(shapes)} domains; a table by {method} needs runs that leave out "
            "one domain" + ("." if method == "leave-one-domain-out" else ", or all but one.")
        )
    return found


def cell_of(values: Sequence[float], draws: Sequence[int] = (0,), note: str = "") -> Cell:
    """Trials as a cell.

    >>> cell = cell_of([0.1, 0.2, 0.3])
    >>> print(f"{100 * cell.mean:.1f} +/- {100 * cell.error:.1f}")
    20.0 +/- 4.7
    """
    n = len(values)
    mean = sum(values) / n
    deviation = math.sqrt(sum((x - mean) ** 2 for x in values) / n)
    return Cell(mean, deviation / math.sqrt(n), n, (min(draws), max(draws)), note)


def gather(trials: Sequence[int], ask: Ask, score: Callable[[Chosen], float]) -> Cell:
    """The cell of some trials: missing when one is, with the reasons; else mean and error of the scores."""
    answers = {trial: ask(trial) for trial in trials}
    gone = {trial: a.reason for trial, a in answers.items() if isinstance(a, Missing)}
    if gone or not trials:
        return Cell(trials=len(answers) - len(gone), note=_by_reason(gone, len(trials)) or "no run")
    chosen = [a for a in answers.values() if isinstance(a, Chosen)]
    partial = _by_reason(
        {t: a.note for t, a in answers.items() if isinstance(a, Chosen) and a.note}, len(trials)
    )
    return cell_of([score(a) for a in chosen], [a.draws for a in chosen], partial)


def average(cells: Sequence[Cell], what: str) -> Cell:
    """The mean of the means, without an error; missing when one of them is."""
    means = [cell.mean for cell in cells if cell.mean is not None]
    if len(means) < len(cells):
        return Cell(note=f"an average needs every {what}")
    low, high = min(cell.draws[0] for cell in cells), max(cell.draws[1] for cell in cells)
    return Cell(sum(means) / len(means), None, min(cell.trials for cell in cells), (low, high))


def _by_domain(
    dataset: str, domains: tuple[str, ...], runs: Sequence[Run], method: str, choices: Choices
) -> list[Table]:
    """A column for each domain that some run leaves out; a note names the others."""
    lines, shown = [], _left_out(runs)
    for row, trials in _rows(runs, 1):
        cells = [gather(trials, _asker(choices, dataset, domains, row, (k,)), _score_at(0)) for k in shown]
        lines.append(Line(row, (*cells, average(cells, "test domain"))))
    title = f"{dataset}: accuracy on the test domain, {_words(method, runs)}"
    others = ", ".join(name for k, name in enumerate(domains) if k not in shown)
    notes = (f"No run leaves out {others}; averages are over the {len(shown)} shown.",) if others else ()
    columns = (*(domains[k] for k in shown), "Avg")
    table = Table("domains", title, dataset, method, columns, tuple(lines), (*notes, *_notes(runs)))
    return [table] if lines else []


def _left_out(runs: Sequence[Run]) -> list[int]:
    """The domains that some run tests on alone."""
    return sorted({run.config.test_domains[0] for run in runs if len(run.config.test_domains) == 1})


def _by_source(
    dataset: str, domains: tuple[str, ...], runs: Sequence[Run], method: str, choices: Choices
) -> list[Table]:
    """Single sources: the mean over targets by source, and for each row source -> target."""
    count = len(domains)
    rows = _rows(runs, count - 1) if count > 2 else []
    lines, found = [], []
    for row, trials in rows:
        cells, matrix = [], []
        for source in range(count):
            targets = tuple(k for k in range(count) if k != source)
            ask = _asker(choices, dataset, domains, row, targets)
            cells.append(gather(trials, ask, lambda chosen: sum(chosen.scores) / len(chosen.scores)))
            entries = [gather(trials, ask, _score_at(at)) for at in range(count - 1)]
            matrix.append(Line(row, (*entries[:source], Cell(blank=True), *entries[source:]), domains[source]))
        lines.append(Line(row, (*cells, average(cells, "source"))))
        title = f"{dataset}: from one source to each target, {_words(method, runs)}"
        found.append(Table("matrix", title, dataset, method, domains, tuple(matrix)))
    title = f"{dataset}: mean accuracy on the other domains by source, {_words(method, runs)}"
    table = Table("sources", title, dataset, method, (*domains, "Avg"), tuple(lines), _notes(runs))
    return [table, *found] if lines else []


def _averages(
    sets: Mapping[tuple[str, tuple[str, ...]], Sequence[Run]],
    tables: Sequence[Table],
    method: str,
    choices: Choices,
) -> list[Table]:
    """For each data set the mean over domains in each trial, then mean and error over trials."""
    rows = sorted({line.row for table in tables for line in table.lines})
    trials_of = {key: dict(_rows(members, 1)) for key, members in sorted(sets.items())}
    shown = [key for key, trials in trials_of.items() if trials]
    lines = []
    for row in rows:
        cells = []
        for dataset, domains in shown:
            asks = [_asker(choices, dataset, domains, row, (k,)) for k in _left_out(sets[dataset, domains])]
            cells.append(_mean_over_domains(trials_of[dataset, domains].get(row, ()), asks))
        lines.append(Line(row, (*cells, average(cells, "data set"))))
    columns = (*(dataset for dataset, _ in shown), "Avg")
    everything = [run for members in sets.values() for run in members]
    title = f"Averages over test domains, {_words(method, everything)}"
    notes = tuple(
        f"{dataset}: over {found} of its {len(domains)} domains, the others were never left out."
        for dataset, domains in shown
        if (found := len(_left_out(sets[dataset, domains]))) < len(domains)
    )
    return [Table("averages", title, "", method, columns, tuple(lines), notes)] if lines else []


def _mean_over_domains(trials: Sequence[int], asks: Sequence[Ask]) -> Cell:
    by_domain = [gather(trials, ask, _score_at(0)) for ask in asks]
    if any(cell.mean is None for cell in by_domain):
        return Cell(note="an average needs every test domain in every trial" if trials else "no run")
    means = []
    for trial in trials:
        scores = [gather([trial], ask, _score_at(0)).mean or 0.0 for ask in asks]
        means.append(sum(scores) / len(scores))
    return cell_of(means, [bound for cell in by_domain for bound in cell.draws])


def _score_at(at: int) -> Callable[[Chosen], float]:
    return lambda chosen: chosen.scores[at]


def _rows(runs: Sequence[Run], left_out: int) -> list[tuple[Row, tuple[int, ...]]]:
    """The rows whose runs leave out so many domains, each with its trials, sorted."""
    found: dict[Row, set[int]] = {}
    for run in runs:
        if len(run.config.test_domains) == left_out:
            found.setdefault(row_of_run(run), set()).add(run.config.trial_seed)
    return [(row, tuple(sorted(trials))) for row, trials in sorted(found.items())]


def _asker(choices: Choices, dataset: str, domains: tuple[str, ...], row: Row, test: tuple[int, ...]) -> Ask:
    return lambda trial: choices.get(Case(dataset, domains, row, test, trial), Missing("no run"))


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


def _words(method: str, runs: Sequence[Run]) -> str:
    if method != METHODS[2]:
        return f"{method} selection"
    rules = sorted({ORACLE.get(run.config.protocol, "last") for run in runs})
    return f"oracle selection ({' or '.join(rules)} checkpoint{', by protocol' * (len(rules) > 1)})"


def _notes(runs: Sequence[Run]) -> tuple[str, ...]:
    """What a reader of a data set's table should know about its runs."""
    digests = sorted({run.config.data_digest or "none" for run in runs})
    if len(digests) == 1:
        return ()
    return (f"The runs name {len(digests)} versions of the data (digests {', '.join(digests)}).",)
