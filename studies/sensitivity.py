r"""How much the learning rate matters to a row: the width of the range in which it loses at most a point.

In each split a row has several draws, with a rate and a test accuracy each. All splits share one parabola in
:math:`x = \log_{10} \text{lr}`, each with a height of its own,

.. math:: y_{si} = a_s + b\, x_{si} + c\, x_{si}^2 + \varepsilon_{si},

fitted by least squares; the heights drop out when :math:`x`, :math:`x^2` and :math:`y` are centred in each
split. With :math:`c < 0` the top lies at :math:`-b / 2c`, and the parabola is within :math:`\delta` of it over

.. math:: 2 \sqrt{\delta / -c}

decades. Without a top (:math:`c \ge 0`) the width is infinite: no rate of the search was too large or too
small. The interval is a bootstrap over trials, for each (data set, test domains) by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, nan, sqrt

import numpy as np

from genie_dg.check import is_number
from genie_dg.results.draws import Candidate
from genie_dg.results.stats import SplitKey, blocks_of
from genie_dg.runs.read import FloatArray

POINT = 0.01
"""Accuracies are from 0 to 1."""
FARTHEST = 300
"""Decades from 1 beyond which a rate is not a float."""


@dataclass(frozen=True)
class Width:
    """Decades of the learning rate within a point of the best, with the ends of a 95 % interval.

    Args:
        decades: the width; infinite where the fit has no top, NaN where nothing can be fitted.
        low, high: of its interval.
        best: the rate at the top; NaN without one.
        runs: behind the fit.
    """

    decades: float
    low: float
    high: float
    best: float
    runs: int


def width(
    splits: Mapping[SplitKey, Sequence[Candidate]], within: float = POINT, resamples: int = 2000, seed: int = 0
) -> Width:
    """The width of one row's range of learning rates.

    Args:
        splits: the draws of the row in each split, from `genie_dg.results.draws.group`.
        within: how much may be lost.
        resamples: of the bootstrap.
        seed: of the bootstrap.
    """
    sums = {split: _sums(draws) for split, draws in splits.items()}
    blocks = list(blocks_of(sorted(sums)).values())
    decades, top = _of(sum(sums.values()), within)
    best = 10**top if abs(top) < FARTHEST else nan
    random = np.random.default_rng(seed)
    resampled = []
    for _ in range(resamples):
        chosen = [block[k] for block in blocks for k in random.integers(0, len(block), len(block))]
        resampled.append(_of(sum(sums[split] for split in chosen), within)[0])
    ends = np.sort([value for value in resampled if not np.isnan(value)])
    runs = sum(len(draws) for draws in splits.values())
    if not len(ends) or not runs:
        return Width(decades, nan, nan, best, runs)
    low, high = (float(ends[round(q * (len(ends) - 1))]) for q in (0.025, 0.975))  # no mean of inf and inf
    return Width(decades, low, high, best, runs)


def rate_of(candidate: Candidate) -> float | None:
    """The learning rate that a run was trained with; ``None`` where its configuration names none."""
    rate = candidate.config.optimizer_settings.get("lr")
    return float(rate) if is_number(rate) and rate > 0 else None


def _sums(draws: Sequence[Candidate]) -> FloatArray:
    """What least squares needs of one split: sums of products of centred x, x squared and y."""
    known = [(rate, c.test) for c in draws if (rate := rate_of(c)) is not None]
    if not known:
        return np.zeros((3, 3))
    x, y = np.log10([rate for rate, _ in known]), np.array([test for _, test in known])
    columns = np.stack([x, x**2, y])
    columns -= columns.mean(axis=1, keepdims=True)
    products: FloatArray = columns @ columns.T
    return products


def _of(sums: FloatArray | int, within: float) -> tuple[float, float]:
    """Width, and the logarithm of the rate at the top, from the sums of all splits."""
    matrix = np.asarray(sums, dtype=np.float64)
    if matrix.shape != (3, 3) or np.linalg.det(matrix[:2, :2]) <= 1e-12:
        return nan, nan
    slope, bend = np.linalg.solve(matrix[:2, :2], matrix[:2, 2])
    if bend >= 0:
        return inf, nan
    return 2 * sqrt(within / -bend), float(-slope / (2 * bend))
