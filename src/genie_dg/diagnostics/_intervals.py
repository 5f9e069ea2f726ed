r"""Confidence intervals of a ratio of means, and of what a jackknife makes into one.

For pairs :math:`(a_k, b_k)` the ratio :math:`R = \bar a / \bar b` has Fieller's interval: all :math:`R` for
which the mean of :math:`a_k - R\,b_k` does not differ from zero by more than the t quantile allows. It needs no
linearisation, and it is unbounded, honestly, when :math:`\bar b` itself does not differ from zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import torch
from torch import Tensor

from ._problem import MeasurementError


@dataclass(frozen=True)
class Ratio:
    """An estimate with its confidence interval; the limits are infinite when the data do not bound it."""

    value: float
    low: float
    high: float
    level: float


def t_quantile(level: float, freedom: int) -> float:
    """The two-sided quantile of Student's t: exact for 1 and 2 degrees, else Hill's series (within 1 %).

    >>> round(t_quantile(0.95, 10), 3), round(t_quantile(0.95, 1), 3)
    (2.228, 12.706)
    """
    upper = (1 + level) / 2
    if freedom == 1:
        return math.tan(math.pi * (upper - 0.5))
    if freedom == 2:
        return (2 * upper - 1) * math.sqrt(2 / (1 - (2 * upper - 1) ** 2))
    z, v = NormalDist().inv_cdf(upper), freedom
    return (
        z
        + (z**3 + z) / (4 * v)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)
        + (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / (92160 * v**4)
    )


def ratio_of_means(numerators: Tensor, denominators: Tensor, level: float = 0.95) -> Ratio:
    """Fieller's interval for mean(numerators) / mean(denominators), pairs being independent draws."""
    if not 0 < level < 1:
        raise MeasurementError(f"level={level} came; a confidence level lies between 0 and 1, such as 0.95.")
    count = len(numerators)
    if count < 2:
        raise MeasurementError(
            f"There was {count} draw, and an interval needs two or more; ask for more draws."
        )
    pairs = torch.stack([numerators.double(), denominators.double()])
    a, b = (float(x) for x in pairs.mean(1))
    (vaa, vab), (_, vbb) = ((torch.cov(pairs)) / count).tolist()
    t = t_quantile(level, count - 1)
    value = a / b if b != 0 else math.nan
    if b == 0 or t * t * vbb >= b * b:
        return Ratio(value, -math.inf, math.inf, level)
    g = t * t * vbb / (b * b)
    shift = g * vab / vbb if vbb > 0 else 0.0
    inside = vaa - 2 * value * vab + value * value * vbb - (g * (vaa - vab * vab / vbb) if vbb > 0 else 0.0)
    half = t / abs(b) * math.sqrt(max(inside, 0.0))
    return Ratio(value, (value - shift - half) / (1 - g), (value - shift + half) / (1 - g), level)
