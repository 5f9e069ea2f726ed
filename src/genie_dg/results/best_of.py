"""What a search cost, and what it would have found with fewer draws, exactly.

Of K draws, k are taken at random without replacement, and the one with the highest validation accuracy is
selected. With the draws ranked from the best validation (i = 1) to the worst (i = K), the i-th is selected when
it is taken and the other k - 1 come from the K - i behind it:

    P(i) = C(K - i, k - 1) / C(K, k)

so the expected test accuracy is the sum of P(i) times the test accuracy of the i-th. No sampling is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import comb

import numpy as np

from .schema import Numbers, ResultsError

Split = tuple[str, tuple[int, ...], int]
"""Data set, test domains, trial."""


def chances(draws: int, taken: int) -> Numbers:
    """The chance of each rank, best first, to be the selected one when ``taken`` of ``draws`` are taken.

    >>> chances(3, 1).round(3).tolist(), chances(3, 2).round(3).tolist(), chances(3, 3).tolist()
    ([0.333, 0.333, 0.333], [0.667, 0.333, 0.0], [1.0, 0.0, 0.0])
    """
    if not 1 <= taken <= draws:
        raise ResultsError(f"{taken} of {draws} draws were asked for; take from 1 to {draws}.")
    whole = comb(draws, taken)  # exact integers: a quotient of them is rounded once
    return np.array([comb(draws - rank, taken - 1) / whole for rank in range(1, draws + 1)])


def best_of(ranked: Sequence[float]) -> Numbers:
    """The expected selected test accuracy for k = 1, ..., K of one split.

    Args:
        ranked: test accuracies of its K draws, ordered from the best validation accuracy to the worst.

    >>> best_of([0.9, 0.6, 0.3]).round(3).tolist()
    [0.6, 0.8, 0.9]
    """
    tests = np.asarray(ranked, dtype=np.float64)
    count = len(tests)
    return np.array([float(chances(count, taken) @ tests) for taken in range(1, count + 1)])


def mean_best_of(splits: Sequence[Sequence[float]]) -> Numbers:
    """The mean of `best_of` over splits, for k = 1 up to the smallest number of draws that a split has.

    Beyond that number some split has no value, and a mean over the others would compare unlike things.

    >>> mean_best_of([[0.9, 0.6, 0.3], [0.5, 0.7]]).round(3).tolist()
    [0.6, 0.65]
    """
    if not splits or not all(len(ranked) for ranked in splits):
        raise ResultsError("A split without draws, or no split at all, came; give each split one draw or more.")
    shortest = min(len(ranked) for ranked in splits)
    values: Numbers = np.stack([best_of(ranked)[:shortest] for ranked in splits]).mean(axis=0)
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
        draws = f"{self.fewest} to {self.most} draws" if self.fewest < self.most else _count(self.most, "draw")
        full = self.most * self.trials * self.test_domains == self.runs
        return (
            f"{draws} x {_count(self.trials, 'trial')} x {_count(self.test_domains, 'test domain')}"
            f"{' =' if full else ', not all of them:'} {_count(self.runs, 'run')}, {_count(self.steps, 'step')}"
        )


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def budget(splits: Mapping[Split, Sequence[int]]) -> Budget:
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


def blocks_of(splits: Iterable[Split]) -> dict[tuple[str, tuple[int, ...]], list[Split]]:
    """The splits of each (data set, test domains), in order."""
    blocks: dict[tuple[str, tuple[int, ...]], list[Split]] = {}
    for split in sorted(splits):
        blocks.setdefault(split[:2], []).append(split)
    return blocks
