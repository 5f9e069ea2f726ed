r"""The gradient signal-to-noise ratio of each parameter.

.. math::
    r_j = \frac{E[g_j]^2}{\mathrm{Var}[g_j]}

over samples, micro-batches or domains: the axis is part of the result. The plain estimate
:math:`\bar g^2 / s^2` of N gradients is biased upwards, by about 1/N even where there is no signal at all. For
Gaussian gradients

.. math::
    \hat r_j = \frac{N-3}{N-1}\,\frac{\bar g_j^2}{s_j^2} - \frac{1}{N}

is exactly unbiased (:math:`E[\bar g^2] = \mu^2 + \sigma^2/N`, independent of :math:`E[1/s^2] =
(N-1)/((N-3)\sigma^2)`), for others to first order. It can be negative: cutting it at zero would bring the bias
back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ._losses import MeasurementError, Parameters
from .per_sample import GradientMoments


@dataclass(frozen=True)
class Summary:
    """The GSNR of a group of parameters.

    Args:
        mean: over the parameters that have a variance.
        median: likewise.
        pooled: :math:`\\sum_j E[g_j]^2 / \\sum_j \\mathrm{Var}[g_j]`: the group as one vector. Few samples do
            not spoil it.
        size: how many parameters there are.
        dead: how many have no variance and no mean; they are left out of mean and median.
    """

    mean: float
    median: float
    pooled: float
    size: int
    dead: int


@dataclass(frozen=True)
class GSNR:
    """The GSNR of each parameter, with what is needed to read it."""

    axis: str
    count: int
    corrected: bool
    values: Parameters
    moments: GradientMoments

    def by_layer(self) -> dict[str, Summary]:
        """One summary for each module that owns parameters; the model's own are under ``""``."""
        layers: dict[str, list[str]] = {}
        for name in self.values:
            layers.setdefault(name.rpartition(".")[0], []).append(name)
        return {layer: _summary(names, self) for layer, names in layers.items()}

    def overall(self) -> Summary:
        """One summary of the whole model."""
        return _summary(list(self.values), self)

    def as_floats(self) -> dict[str, float]:
        """The plain numbers of the whole model, for logs."""
        s = self.overall()
        return {"mean": s.mean, "median": s.median, "pooled": s.pooled, "dead": s.dead / s.size}


def gsnr(moments: GradientMoments, corrected: bool = True) -> GSNR:
    """The GSNR of each parameter.

    A parameter with neither mean nor variance (a dead unit, an unused embedding) has GSNR 0; one with a mean
    and no variance has an infinite one.

    Args:
        moments: from `gradient_moments`.
        corrected: take the small-sample bias out, as in the formula of this module; needs 4 gradients.

    Example:
        >>> mean, spread = {"weight": torch.tensor([3.0])}, {"weight": torch.tensor([8.0])}
        >>> moments = GradientMoments("sample", 1, 5, mean, spread)
        >>> gsnr(moments, corrected=False).values["weight"].item()
        4.5
        >>> round(gsnr(moments).values["weight"].item(), 6)
        2.05
    """
    n = moments.count
    if corrected and n < 4:
        raise MeasurementError(
            f"Got {n} gradients along the axis {moments.label!r}; expected 4 or more to correct the bias of a "
            "GSNR, so give more, or take the plain estimate with corrected=False."
        )
    variance = moments.variance
    values = {name: ratio(m, variance[name], n if corrected else None) for name, m in moments.mean.items()}
    return GSNR(moments.label, n, corrected, values, moments)


def ratio(mean: Tensor, variance: Tensor, count: int | None) -> Tensor:
    """mean^2 / variance for each entry, corrected when a count is given; 0 where both are 0."""
    plain = mean.square() / variance
    if count is not None:
        plain = plain * ((count - 3) / (count - 1)) - 1 / count
    return torch.where((mean == 0) & (variance == 0), 0.0, plain)


def _summary(names: list[str], g: GSNR) -> Summary:
    values = torch.cat([g.values[name].flatten() for name in names])
    mean = torch.cat([g.moments.mean[name].flatten() for name in names])
    variance = torch.cat([g.moments.spread[name].flatten() for name in names]) / (g.count - 1)
    dead = int(((mean == 0) & (variance == 0)).sum())
    alive = values[variance > 0]
    noise = float(variance.sum(dtype=torch.float64))
    signal = float(mean.square().sum(dtype=torch.float64))
    if g.corrected:
        signal -= noise / g.count
    middle = float(alive.mean(dtype=torch.float64)), float(alive.median())  # both NaN without any
    return Summary(*middle, signal / noise if noise > 0 else math.nan, values.numel(), dead)
