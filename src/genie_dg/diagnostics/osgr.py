r"""The one-step generalization ratio in the theorem's form, and the formula as published.

.. math::
    R = \frac{E\,\Delta L_{D'}}{E\,\Delta L_D}
      = \sum_j W_j \frac{n r_j}{n r_j + 1}, \qquad
    W_j = \frac{p_j E[g_{D,j}^2]}{\sum_k p_k E[g_{D,k}^2]}, \qquad
    E[g_{D,j}^2] = E[g_j]^2 + \mathrm{Var}[g_j] / n

for a step :math:`\Delta\theta = -p \odot g_D` that is small, computed on n samples D and judged on n others D'.
R is 1 when the step helps on D' as much as on D and 0 when it only fits noise. From N gradients it is estimated
as

.. math::
    \hat R = \frac{\hat A}{\hat A + \hat B / n}, \qquad
    \hat A = \sum_j p_j (\bar g_j^2 - s_j^2 / N), \qquad \hat B = \sum_j p_j s_j^2 ,

numerator and denominator being unbiased for a p that does not depend on these gradients. The measured form, the
definition itself, is in `measured`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from genie_dg.check import number, whole_number
from genie_dg.statistics import t_quantile

from ._isolation import undisturbed
from ._losses import Batch, Loss, MeasurementError, Parameters
from .per_sample import GradientMoments, gradient_moments, gradient_rows
from .updates import effective_number, gini, top_share


@dataclass(frozen=True)
class Ratio:
    """An estimate with its confidence interval; the limits are infinite when the data do not bound it."""

    value: float
    low: float
    high: float
    level: float


@dataclass(frozen=True)
class OSGR:
    """The ratio, its interval (NaN when none was computed) and each parameter's share W of the loss change."""

    value: float
    low: float
    high: float
    level: float
    n: float
    axis: str
    weights: Parameters

    def as_floats(self) -> dict[str, float]:
        """Plain numbers for logs, with how balanced the weights W are."""
        w = torch.cat([w.flatten() for w in self.weights.values()])
        return {
            "osgr": self.value, "osgr_low": self.low, "osgr_high": self.high,
            "w_gini": gini(w), "w_top_1_percent": top_share(w), "w_effective": effective_number(w) / w.numel(),
        }  # fmt: skip


def osgr_of_moments(
    moments: GradientMoments, preconditioner: Parameters | None = None, n: float | None = None
) -> OSGR:
    """The theorem's OSGR from moments alone, without an interval (the moments do not hold enough for one).

    Args:
        moments: from `gradient_moments`.
        preconditioner: from `preconditioner`: p by name; ``None`` is SGD (p = 1).
        n: samples of D, by default as many as were measured; along the axis of domains, domains.

    Example:
        >>> moments = GradientMoments("sample", 1, 5, {"w": torch.tensor([3.0])}, {"w": torch.tensor([8.0])})
        >>> round(osgr_of_moments(moments, n=10).value, 6)  # (9 - 2/5) / (9 - 2/5 + 2/10)
        0.977273
    """
    p = _values(moments, preconditioner)
    units = float(moments.count)  # how many of these gradients the samples of D amount to
    if n is not None:
        units = number("n", n, 0, excluding=(0,), error=MeasurementError) / moments.unit
    variance = moments.variance
    signal = {name: p[name] * (m.square() - variance[name] / moments.count) for name, m in moments.mean.items()}
    noise = {name: p[name] * v for name, v in variance.items()}
    a, b = _total(signal), _total(noise)
    if a + b / units == 0:
        raise MeasurementError(
            "The preconditioned gradient is zero everywhere, so no step changes the loss and there "
            "is no ratio; check that the optimizer holds the model's parameters and that its learning rate is "
            "not 0."
        )
    weights = {name: (s + noise[name] / units) / (a + b / units) for name, s in signal.items()}
    value = a / (a + b / units)
    return OSGR(value, math.nan, math.nan, math.nan, units * moments.unit, moments.label, weights)


def osgr_of_batch(
    model: nn.Module, loss: Loss, batch: Batch, preconditioner: Parameters | None = None,
    *, n: float | None = None, level: float = 0.95, **options: Any,
) -> OSGR:  # fmt: skip
    """The theorem's OSGR with a confidence interval; two passes over the gradients, the model left as it was.

    The interval is Fieller's, on the jackknife's pseudo-values of numerator and denominator: gradients, not
    parameters, are left out one by one, so correlations between parameters are accounted for. It holds p
    fixed, so p should not come from this batch: take it from the optimizer, or from other samples. Without any
    signal the jackknife overstates the variance, and the interval is too wide rather than too narrow.

    ``level`` is that of the interval, ``preconditioner`` and ``n`` are as in `osgr_of_moments`, and ``options``
    those of `gradient_moments`.
    """
    moments = gradient_moments(model, loss, batch, **options)
    if moments.count < 4:
        raise MeasurementError(
            f"Got {moments.count} gradients along the axis {moments.label!r}; expected four or more for a "
            "jackknife interval, so give more samples, or use osgr_of_moments for the value alone."
        )
    plain = osgr_of_moments(moments, preconditioner, n)
    p = _values(moments, preconditioner)
    with undisturbed(model, options.get("mode", "eval"), options.get("seed", 0)):
        rows = gradient_rows(model, loss, batch, moments.axis, moments.unit, options.get("chunk"))
        along, square = _products(rows, moments, p)
    ratio = _jackknife(along, square, plain.n / moments.unit, level)
    return replace(plain, value=ratio.value, low=ratio.low, high=ratio.high, level=level)


def _products(rows: Iterable[list[Tensor]], moments: GradientMoments, p: Parameters) -> tuple[Tensor, Tensor]:
    r"""For each gradient :math:`a_i = g_i^\top P \bar g` and :math:`b_i = g_i^\top P g_i`, in float64."""
    means = [m.flatten() for m in moments.mean.values()]
    factors = [p[name].flatten().to(m.dtype) for name, m in moments.mean.items()]
    scratches = [torch.empty_like(m) for m in means]
    products = []
    for gradient in rows:
        a, b = 0.0, 0.0
        for g, mean, factor, scratch in zip(gradient, means, factors, scratches, strict=True):
            g = g.detach().reshape(-1).to(mean.dtype)
            torch.mul(g, factor, out=scratch)
            a += float(torch.dot(scratch, mean))
            b += float(torch.dot(scratch, g))
        products.append((a, b))
    along, square = torch.tensor(products, dtype=torch.float64).T.contiguous()
    return along, square


def _jackknife(a: Tensor, b: Tensor, units: float, level: float) -> Ratio:
    """The ratio and its interval from the `_products`, which are all that leaving one gradient out needs."""
    count, total, squares = len(a), len(a) * a.sum(), b.sum()  # total = S^T P S with S the sum

    def parts(k: int, total: Tensor, squares: Tensor) -> tuple[Tensor, Tensor]:
        signal = (total - squares) / (k * (k - 1))
        noise = (squares - total / k) / (k - 1)
        return signal, signal + noise / units

    whole = parts(count, total, squares)
    without = parts(count - 1, total - 2 * count * a + b, squares - b)
    top, bottom = (count * w - (count - 1) * o for w, o in zip(whole, without, strict=True))
    return ratio_of_means(top, bottom, level)


def ratio_of_means(numerators: Tensor, denominators: Tensor, level: float = 0.95) -> Ratio:
    r"""Fieller's interval for mean(numerators) / mean(denominators), pairs being independent draws.

    It holds all :math:`R` for which the mean of :math:`a_k - R\,b_k` does not differ from zero by more than the
    t quantile allows. It needs no linearisation, and it is unbounded when :math:`\bar b` itself does not differ
    from zero.
    """
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


def osgr_as_published(gradient: Mapping[str, Tensor], batch_size: int) -> float:
    r"""What the authors' logger plots under the name of OSGR: not a generalization ratio.

    .. math::
        1 - \frac{\mathrm{Var}_k[g_k]}{n\,\overline{g^2} + 10^{-7}}

    with the variance taken across the *parameters* of one gradient instead of across samples. The mean over
    parameters is near zero, so the variance is nearly :math:`\overline{g^2}`, and the value depends on the
    batch and the size of the gradient alone: where :math:`n\,\overline{g^2}` is far above 1e-7 it is 1 - 1/n,
    for every optimizer and all data; it rises to 1 as the gradient vanishes. Where the two are equal it is
    1 - 1/(2n); the gradients of a ResNet-50 come near that late in training. Offered for comparison with
    published curves only.

    Args:
        gradient: one batch gradient by name, of two entries or more.
        batch_size: n, the pictures of all domains in the step.

    Example:
        >>> gradient = torch.tensor([1.0, -1.0]).repeat(1000)
        >>> [round(osgr_as_published({"w": scale * gradient}, 96), 4) for scale in (1.0, 1e-3, 1e-4, 1e-5)]
        [0.9896, 0.9896, 0.9906, 0.9991]
    """
    whole_number("batch_size", batch_size, error=MeasurementError)
    every = torch.cat([g.detach().flatten().double() for g in gradient.values()])
    square = float(every.square().mean())
    return 1 - float(every.var()) / (batch_size * square + 1e-7)


def _values(moments: GradientMoments, preconditioner: Parameters | None) -> Parameters:
    if preconditioner is None:
        return {name: torch.ones_like(m) for name, m in moments.mean.items()}
    if differ := sorted(set(preconditioner) ^ set(moments.mean)):
        raise MeasurementError(
            f"Preconditioner and gradients name different parameters ({', '.join(differ[:3])}); "
            "build both from the same model."
        )
    return preconditioner


def _total(parts: Parameters) -> float:
    return sum(float(t.sum(dtype=torch.float64)) for t in parts.values())
