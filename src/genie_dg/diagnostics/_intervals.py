r"""Confidence intervals of a ratio of means, also of a jackknife's pseudo-values.

For pairs :math:`(a_k, b_k)` the ratio :math:`R = \bar a / \bar b` has Fieller's interval: all :math:`R` for
which the mean of :math:`a_k - R\,b_k` does not differ from zero by more than the t quantile allows. It needs no
linearisation, and it is unbounded when :math:`\bar b` itself does not differ from zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from genie_dg.check import number
from genie_dg.statistics import t_quantile

from ._functional import MeasurementError


@dataclass(frozen=True)
class Ratio:
    """An estimate with its confidence interval; the limits are infinite when the data do not bound it."""

    value: float
    low: float
    high: float
    level: float


def ratio_of_means(numerators: Tensor, denominators: Tensor, level: float = 0.95) -> Ratio:
    """Fieller's interval for mean(numerators) / mean(denominators), pairs being independent draws."""
    number("level", level, 0, 1, excluding=(0, 1), error=MeasurementError)
    count = len(numerators)
    if count < 2:
        raise MeasurementError(
            f"Got {count} draw; expected two or more for an interval, so ask for more draws."
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
