"""Which run, and which record of it, counts: DomainBed's three rules, as a function of the frame.

Fixed are data set, row (algorithm, optimizer, backbone, protocol), test domains T and trial. With S the
training domains, a run's value at a record and its score there are

    training-domain        value = mean of out_acc[s] over s in S
    leave-one-domain-out   value = mean over s in S of in_acc[s] of the run that leaves out T and s
    oracle                 value = mean of out_acc[t] over t in T
    score                  in_acc[t] for each t in T

The first record with the highest value stands for its run (where the run's oracle rule is "last", the oracle
sees the last record only). Then the run with the highest value is chosen; at a tie the one with the largest
draw. Runs that are not complete take no part; of a run with SWAD the average alone counts. A run whose loss
became infinite or NaN is never chosen, but beside complete runs it counts as a draw that was tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from genie_dg.check import one_of
from genie_dg.runs.outcome import Ending
from genie_dg.runs.read import FloatArray
from genie_dg.statistics import mean

from .frame import ResultsError

METHODS = ("training-domain", "leave-one-domain-out", "oracle")
"""The methods by name."""


class Case(NamedTuple):
    """One choice to make: the runs of a row that leave out the same domains in the same trial."""

    dataset: str
    domains: tuple[str, ...]
    algorithm: str
    optimizer: str
    backbone: str
    protocol: str
    test_domains: tuple[int, ...]
    trial: int


CASE = list(Case._fields)
"""The columns of a case."""


@dataclass(frozen=True)
class SelectedRun:
    """What was chosen in a case, or why nothing was.

    Args:
        row: the name of the row.
        run, folder: the run, and where it is.
        step: of the record.
        value: what the method saw.
        scores: ``in_acc`` of the test domains, in order.
        draws: how many runs could have been chosen, or diverged.
        note: which runs could not, and why; empty when all could.
        missing: why nothing was chosen; empty when something was.
    """

    row: str
    run: str = ""
    folder: str = ""
    step: int = -1
    value: float = 0.0
    scores: tuple[float, ...] = ()
    draws: int = 0
    note: str = ""
    missing: str = ""

    @property
    def score(self) -> float:
        """The mean of the scores."""
        return mean(self.scores)


def best_records(frame: pl.DataFrame, method: str = "training-domain") -> pl.DataFrame:
    """The runs that may be chosen, each with the place ``at`` of the record that stands for it.

    ``chosen_step``, ``value`` (what the method sees) and ``score`` (the test accuracy) are of that record. The
    method is ``training-domain`` or ``oracle``.
    """
    return _best_records(frame.lazy(), method).collect()


def _best_records(frame: pl.LazyFrame, method: str) -> pl.LazyFrame:
    """The same before it is computed, so that columns that nobody asks for are never touched."""
    value = "validation" if method == "training-domain" else "test_validation"
    usable = frame.filter(usable_runs(), pl.col(value).list.last().is_not_nan())
    last = pl.col("averaged") | ((pl.col("oracle") == "last") & (method == "oracle"))
    end = pl.when(last).then(pl.col("step").list.len().cast(pl.Int64) - 1)
    at = end.otherwise(pl.col(value).list.arg_max().cast(pl.Int64))
    usable = usable.with_columns(at=at)
    return usable.with_columns(
        value=pl.col(value).list.get(pl.col("at")),
        chosen_step=pl.col("step").list.get(pl.col("at")),
        score=pl.col("test").list.get(pl.col("at")),
    )


def usable_runs() -> pl.Expr:
    """Complete runs with a record that selection looks at."""
    return pl.col("done") & (pl.col("step").list.len() > 0) & (~pl.col("swad") | pl.col("averaged"))


def diverged_runs() -> pl.Expr:
    """Runs that ended with a loss that is infinite or NaN, and have a record from before."""
    ended = (pl.col("outcome") == Ending.diverged.value).fill_null(value=False)
    return ended & (pl.col("step").list.len() > 0) & ~pl.col("swad")


def diverged_draws(frame: pl.DataFrame) -> pl.DataFrame:
    """The runs that diverged beside a complete run of their case: draws that were tried, never chosen."""
    return frame.filter(diverged_runs() & usable_runs().any().over(CASE))


def select(frame: pl.DataFrame, method: str = "training-domain") -> dict[Case, SelectedRun]:
    """The choice of a method for every case that it is defined for.

    Leave-one-domain-out answers for cases with one test domain, the other two for all.
    """
    one_of("selection", method, METHODS, ResultsError)
    notes = _left_out(frame)
    if method == "leave-one-domain-out":
        return _by_partners(frame, notes)
    choices = {case: SelectedRun(row, missing=note or "no run") for case, (row, note, _) in notes.items()}
    for case in choices:
        if method == "training-domain" and len(case.test_domains) == len(case.domains):
            choices[case] = SelectedRun(choices[case].row, missing="no domain was trained on")
    domains = pl.col("domains").list.len()
    accuracies = pl.col("in_acc").list.slice(pl.col("at") * domains, domains).alias("accuracies")
    columns = ["row", "run", "folder", "chosen_step", "value", "accuracies", "draws"]
    best = _best_records(frame.lazy(), method).with_columns(accuracies, draws=pl.len().over(CASE))
    best = best.select(*CASE, *columns, "draw").sort("draw", "run", maintain_order=True)
    best = best.filter(pl.col("value") == pl.col("value").max().over(CASE))
    chosen = best.unique(CASE, keep="last", maintain_order=True).collect()
    for case, values in zip(cases(chosen), chosen.select(columns).iter_rows(), strict=True):
        row, run, folder, step, value, of_domains, draws = values
        scores = tuple(of_domains[k] for k in case.test_domains)
        _, note, diverged = notes[case]
        choices[case] = SelectedRun(row, run, folder, step, value, scores, draws + diverged, note)
    return choices


def cases(frame: pl.DataFrame) -> Iterator[Case]:
    """The case of each run of a frame."""
    for values in frame.select(CASE).iter_rows():
        case = Case(*values)
        yield case._replace(domains=tuple(case.domains), test_domains=tuple(case.test_domains))


_Notes = dict[Case, tuple[str, str, int]]
"""By case its row, words for the runs that cannot be chosen, and how many diverged beside complete ones."""


def _left_out(frame: pl.DataFrame) -> _Notes:
    ordered = frame.lazy().sort("draw", "run", maintain_order=True)
    draw = diverged_runs() & usable_runs().any()
    failed = ~pl.col("done") & pl.col("outcome").is_not_null() & ~draw
    counted = (
        ordered.group_by(CASE, maintain_order=True)
        .agg(
            pl.col("row").first(),
            pl.len().alias("runs"),
            (~pl.col("done") & ~draw).sum().alias("unfinished"),
            (pl.col("done") & ~usable_runs()).sum().alias("empty"),
            pl.col("reason").filter(failed).last().alias("failure"),
            draw.sum().alias("diverged"),
        )
        .collect()
    )
    notes = {}
    numbers = counted.select("row", "runs", "unfinished", "empty", "failure", "diverged").iter_rows()
    for case, (row, runs, unfinished, empty, failure, diverged) in zip(cases(counted), numbers, strict=True):
        words = [f"{unfinished} of {runs} runs unfinished"] if unfinished else []
        words += [f"{empty} of {runs} runs without records"] if empty else []
        if failure is not None and failure.strip():
            words.append(f"the last failure was: {failure.strip().splitlines()[0][:120].rstrip('.')}")
        notes[case] = row, ", ".join(words), diverged
    return notes


class _Judged(NamedTuple):
    """A run as leave-one-domain-out sees it: the steps of its records and their accuracies by domain."""

    run: str
    folder: str
    draw: int
    settings: bytes
    steps: FloatArray
    in_acc: FloatArray


def _by_partners(frame: pl.DataFrame, notes: _Notes) -> dict[Case, SelectedRun]:
    """Leave-one-domain-out: a run is judged by its partners, which leave out one more domain each."""
    small = frame.filter(usable_runs(), pl.col("test_domains").list.len() <= 2)
    small = small.sort("draw", "run", maintain_order=True)
    candidates: dict[Case, list[_Judged]] = {}
    columns = ["run", "folder", "draw", "config", "step", "in_acc", "averaged"]
    for case, values in zip(cases(small), small.select(columns).iter_rows(), strict=True):
        run, folder, draw, config, step, in_acc, averaged = values
        first = len(step) - 1 if averaged else 0
        accuracies = np.asarray(in_acc).reshape(len(step), -1)
        one = _Judged(run, folder, draw, settings_of(config), np.asarray(step)[first:], accuracies[first:])
        candidates.setdefault(case, []).append(one)
    single = {case: note for case, note in notes.items() if len(case.test_domains) == 1}
    return {case: _in_turn(case, candidates, *note) for case, note in single.items()}


def _in_turn(
    case: Case, candidates: dict[Case, list[_Judged]], row: str, left_out: str, diverged: int
) -> SelectedRun:
    if len(case.domains) < 3:
        return SelectedRun(row, missing="leave-one-domain-out needs at least two training domains")
    partners = {}
    for other in (k for k in range(len(case.domains)) if k not in case.test_domains):
        pair = case._replace(test_domains=tuple(sorted((*case.test_domains, other))))
        partners[other] = {one.settings: one for one in candidates.get(pair, ())}
    best, draws, lacking = None, diverged, []
    for one in candidates.get(case, ()):
        absent = [case.domains[k] for k, known in partners.items() if one.settings not in known]
        if absent:
            lacking.append((one.draw, ", ".join(absent)))
            continue
        at, values = _common(one, {k: known[one.settings] for k, known in partners.items()})
        if not len(at):
            lacking.append((one.draw, "any domain at the same step"))
            continue
        draws += 1
        place = int(values.argmax())
        if best is None or values[place] >= best[0]:
            best = float(values[place]), one, int(at[place])
    note = "; ".join(filter(None, [left_out, _lacking(lacking, len(candidates.get(case, ())))]))
    if best is None:
        return SelectedRun(row, missing=note or "no run")
    value, one, place = best
    scores = tuple(float(one.in_acc[place, k]) for k in case.test_domains)
    return SelectedRun(row, one.run, one.folder, int(one.steps[place]), value, scores, draws, note)


def _lacking(lacking: Sequence[tuple[int, str]], of: int) -> str:
    if not lacking:
        return ""
    seed, names = lacking[0]
    count = f"{len(lacking)} of {of} draws lack complete runs that also leave out one more domain"
    return f"{count} (hparams seed {seed}: {names})"


def _common(one: _Judged, others: dict[int, _Judged]) -> tuple[NDArray[np.int64], FloatArray]:
    """The places of a run's records at the steps that all partners have, and the value at each."""
    steps = reduce(np.intersect1d, (partner.steps for partner in others.values()), one.steps)
    columns = (p.in_acc[np.searchsorted(p.steps, steps), k] for k, p in others.items())
    return np.searchsorted(one.steps, steps), reduce(add, columns, np.zeros(len(steps))) / len(others)


def settings_of(config: Any) -> bytes:
    """What partners of leave-one-domain-out have in common: draw, settings and length."""
    names = ("hparams_seed", "algorithm_settings", "optimizer_settings", "batch_size", "dropout", "steps")
    return msgspec.json.encode([getattr(config, name) for name in names], order="sorted")
