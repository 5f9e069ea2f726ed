"""The statistics of a comparison: what a search would have cost with fewer draws, and intervals.

**Fewer draws, exactly.** Of K draws, k are taken at random without replacement, and the one with the highest
validation accuracy is selected. With the draws ranked from the best validation (i = 1) to the worst (i = K),
the i-th is selected when it is taken and the other k - 1 come from the K - i behind it:

    P(i) = C(K - i, k - 1) / C(K, k)

so the expected test accuracy is the sum of P(i) times the test accuracy of the i-th. No sampling is needed.

**A bootstrap interval that repeats the selection.** One resample does this for each (data set, test domains):
as many trials as there are, with replacement, the same for both rows; then in each of these trials, for each
row by itself, as many draws as there are, with replacement, of which the one with the highest validation
accuracy is selected again. The statistic is the mean over splits of the difference of the selected test
accuracies; the interval lies between the percentiles.

A resample of draws need not be carried out. With K draws ranked from the worst validation (r = 0) to the best,
the selected rank is the largest of K uniform ranks, whose law is P(rank <= r) = ((r + 1) / K)^K; it is drawn
from one uniform number u as ceil(K u^(1/K)) - 1.

What the interval covers: another choice of trials (data splits, initial weights, batches) and another outcome
of the search. What it does not cover: other data sets or test domains, which are held fixed; another search
space; faults that all runs share. What it does only roughly: trials of different test domains are taken as
independent although one trial splits a data set in one way; with T trials the spread between trials is
understated by the factor sqrt((T - 1) / T), while the selection is counted twice, in the draws and in the
spread between trials, which overstates. In simulations with four test domains and three trials the 95 %
interval held the truth in 87 % of cases where only trials vary, and in 97 % or more where the search decides;
with one trial in 81 %. A resampled search also holds only about 63 % of the draws, so the interval leans
against the row that gains more from tuning: where one row gained five standard deviations of the noise by
tuning and the other nothing, it held the truth in 79 % of cases and lay too low in all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.typing import NDArray

from genie_dg.check import whole_number
from genie_dg.runs.read import FloatArray

from .frame import ResultsError

SplitKey = tuple[str, tuple[int, ...], int]
"""Data set, test domains, trial."""


def chances(draws: int, taken: int) -> FloatArray:
    """The chance of each rank, best first, to be the selected one when ``taken`` of ``draws`` are taken.

    >>> chances(3, 1).round(3).tolist(), chances(3, 2).round(3).tolist(), chances(3, 3).tolist()
    ([0.333, 0.333, 0.333], [0.667, 0.333, 0.0], [1.0, 0.0, 0.0])
    """
    whole_number("taken", taken, 1, draws, ResultsError)
    whole = comb(draws, taken)  # exact integers: a quotient of them is rounded once
    return np.array([comb(draws - rank, taken - 1) / whole for rank in range(1, draws + 1)])


def best_of(ranked: Sequence[float]) -> FloatArray:
    """The expected selected test accuracy for k = 1, ..., K of one split.

    Args:
        ranked: test accuracies of its K draws, ordered from the best validation accuracy to the worst.

    >>> best_of([0.9, 0.6, 0.3]).round(3).tolist()
    [0.6, 0.8, 0.9]
    """
    tests = np.asarray(ranked, dtype=np.float64)
    count = len(tests)
    return np.array([float(chances(count, taken) @ tests) for taken in range(1, count + 1)])


def mean_best_of(splits: Sequence[Sequence[float]]) -> FloatArray:
    """The mean of `best_of` over splits, for k = 1 up to the smallest number of draws that a split has.

    Beyond that number some split has no value, and a mean over the others would compare unlike things.

    >>> mean_best_of([[0.9, 0.6, 0.3], [0.5, 0.7]]).round(3).tolist()
    [0.6, 0.65]
    """
    if not splits or not all(len(ranked) for ranked in splits):
        raise ResultsError("There is no split, or one without draws; give each split one draw or more.")
    shortest = min(len(ranked) for ranked in splits)
    values: FloatArray = np.stack([best_of(ranked)[:shortest] for ranked in splits]).mean(axis=0)
    return values


@dataclass(frozen=True)
class Budget:
    """What was spent on a row; a step of an optimizer that makes several passes counts once.

    Args:
        fewest, most: draws in a split.
        trials: the largest number of trials of one choice of test domains.
        test_domains: how many choices of (data set, test domains).
        runs, steps: in total.
    """

    fewest: int
    most: int
    trials: int
    test_domains: int
    runs: int
    steps: int

    def __str__(self) -> str:
        draws = count_of(self.most, "draw")
        if self.fewest < self.most:
            draws = f"{self.fewest} to {draws}"
        full = self.most * self.trials * self.test_domains == self.runs
        size = f"{draws} x {count_of(self.trials, 'trial')} x {count_of(self.test_domains, 'test domain')}"
        spent = f"{count_of(self.runs, 'run')}, {count_of(self.steps, 'step')}"
        return f"{size}{' =' if full else ', not all of them:'} {spent}"


def count_of(number: int, thing: str) -> str:
    """A number of things.

    >>> count_of(1, "run"), count_of(2000, "run")
    ('1 run', '2,000 runs')
    """
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def budget(splits: Mapping[SplitKey, Sequence[int]]) -> Budget:
    """The budget of one row.

    Args:
        splits: for each split the steps of each of its draws.

    >>> print(budget({("digits", (0,), trial): [300] * 20 for trial in range(3)}))
    20 draws x 3 trials x 1 test domain = 60 runs, 18,000 steps
    """
    sizes = [len(steps) for steps in splits.values()]
    blocks = blocks_of(splits)
    return Budget(
        fewest=min(sizes),
        most=max(sizes),
        trials=max(len(trials) for trials in blocks.values()),
        test_domains=len(blocks),
        runs=sum(sizes),
        steps=sum(map(sum, splits.values())),
    )


def blocks_of(splits: Iterable[SplitKey]) -> dict[tuple[str, tuple[int, ...]], list[SplitKey]]:
    """The splits of each (data set, test domains), in order."""
    blocks: dict[tuple[str, tuple[int, ...]], list[SplitKey]] = {}
    for split in sorted(splits):
        blocks.setdefault(split[:2], []).append(split)
    return blocks


LEVEL = 0.95


@dataclass(frozen=True)
class Trial:
    """The draws of two rows in one split: test accuracies ordered from the worst validation to the best."""

    row: tuple[float, ...]
    baseline: tuple[float, ...]


@dataclass(frozen=True)
class Interval:
    """Between which values ``level`` of the resamples lie."""

    low: float
    high: float
    level: float
    resamples: int


def resampled_means(
    blocks: Sequence[Sequence[Trial]], resamples: int, generator: np.random.Generator
) -> FloatArray:
    """The mean difference of each resample.

    Args:
        blocks: for each (data set, test domains) its trials.
        resamples: how many.
        generator: where the random numbers come from.
    """
    total, splits = np.zeros(resamples), 0
    for trials in blocks:
        picked = generator.integers(len(trials), size=(resamples, len(trials)))
        ours = _selected([trial.row for trial in trials], picked, generator)
        theirs = _selected([trial.baseline for trial in trials], picked, generator)
        total += (ours - theirs).sum(axis=1)
        splits += len(trials)
    return total / splits


def _selected(
    tests: Sequence[Sequence[float]], picked: NDArray[np.int64], random: np.random.Generator
) -> FloatArray:
    """The test accuracy that is selected in each picked trial after its draws were resampled."""
    counts = np.array([len(values) for values in tests])
    padded = np.array([[*values, *[np.nan] * (counts.max() - len(values))] for values in tests])
    draws = counts[picked]
    rank = np.ceil(draws * random.random(picked.shape) ** (1 / draws)).astype(np.int64) - 1
    chosen: FloatArray = padded[picked, np.clip(rank, 0, draws - 1)]
    return chosen


def interval(
    blocks: Sequence[Sequence[Trial]], resamples: int = 2000, seed: int = 0, level: float = LEVEL
) -> Interval | None:
    """The percentile interval, or ``None`` where every split has one trial and one draw: nothing to resample.

    >>> interval([[Trial((0.5, 0.75), (0.5, 0.625))]], resamples=500)
    Interval(low=-0.125, high=0.25, level=0.95, resamples=500)
    >>> interval([[Trial((0.5,), (0.4,))]])
    """
    whole_number("resamples", resamples, error=ResultsError)
    single = all(
        len(trials) == 1 and len(trial.row) == len(trial.baseline) == 1 for trials in blocks for trial in trials
    )
    if single:
        return None
    means = resampled_means(blocks, resamples, np.random.default_rng(seed))
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high), level, resamples)
