r"""The one-step generalization ratio of a Gaussian toy, in closed form.

Parameter :math:`j \in J` has per-sample gradients :math:`N(\mu_j, \rho_j^2)`, independent across samples, and
:math:`g_D` is the mean over the :math:`n` samples of a draw :math:`D`. With :math:`r_j = \mu_j^2 / \rho_j^2`
(GSNR), a preconditioner :math:`p_j \ge 0` and a small step the ratio is

.. math::
    R = \frac{\sum_j p_j \mu_j^2}{\sum_j p_j E[g_{D,j}^2]}
      = 1 - \frac1n \sum_j \frac{W_j}{r_j + 1/n}, \qquad
    E[g_{D,j}^2] = \mu_j^2 + \frac{\rho_j^2}{n}, \qquad W_j = \frac{p_j E[g_{D,j}^2]}{\sum_i p_i E[g_{D,i}^2]} .

**GENIE's preconditioner is the inverse variance.** :math:`E[g_{D,j}^2] = \rho_j^2 (r_j + 1/n)`, so that the
theorem's :math:`p_j = (r_j + 1/n) / E[g_{D,j}^2]` is :math:`1 / \rho_j^2`, and the signal drops out of it.

Whether GENIE's ratio is the larger one, as the paper claims, is the subject of `claims`.

All functions compute in float64. A parameter with mean 0 and variance 0 has no gradient: it counts as absent
from :math:`J`. Variance 0 with a mean is the limit :math:`\rho_j^2 \to 0`: :math:`r_j` is infinite.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from genie_dg.check import number

from ._functional import MeasurementError

PreconditionerFormula: TypeAlias = Callable[[Tensor, Tensor, float], Tensor]
"""p as a function of (mean, variance, n)."""


def check_samples(n: float) -> None:
    """Refuse a number of samples of a draw that is not above 0."""
    number("n", n, 0, open_low=True, error=MeasurementError)


def _check_gradients(mean: Tensor, variance: Tensor, n: float) -> tuple[Tensor, Tensor]:
    """Mean and variance in float64, checked."""
    check_samples(n)
    if mean.shape != variance.shape or mean.numel() == 0:
        raise MeasurementError(
            f"mean has shape {tuple(mean.shape)} and variance {tuple(variance.shape)}; give two tensors of one "
            "shape with at least one entry."
        )
    mean, variance = mean.to(torch.float64), variance.to(torch.float64)
    if not ((mean.square() + variance / n).isfinite().all() and (variance >= 0).all()):
        raise MeasurementError(
            "mean^2 + variance/n is not finite, or a variance is negative; give finite means and finite "
            "variances of at least 0."
        )
    return mean, variance


def second_moment(mean: Tensor, variance: Tensor, n: float) -> Tensor:
    r"""The expected squared gradient of a draw, :math:`E[g_D^2] = \mu^2 + \rho^2 / n`.

    Args:
        mean: :math:`\mu_j`, the expected gradient.
        variance: :math:`\rho_j^2`, the variance of one sample's gradient.
        n: samples in a draw; need not be a whole number.

    Example:
        >>> second_moment(torch.tensor([3.0]), torch.tensor([2.0]), 4)
        tensor([9.5000], dtype=torch.float64)
    """
    mean, variance = _check_gradients(mean, variance, n)
    return mean.square() + variance / n


def signal_to_noise(mean: Tensor, variance: Tensor) -> Tensor:
    r"""The GSNR :math:`r_j = \mu_j^2 / \rho_j^2`: infinite without noise, NaN without a gradient.

    Example:
        >>> signal_to_noise(torch.tensor([3.0, 1.0, 0.0]), torch.tensor([2.0, 0.0, 0.0]))
        tensor([4.5000,    inf,    nan], dtype=torch.float64)
    """
    mean, variance = _check_gradients(mean, variance, 1)
    return mean.square() / variance


def _sgd(mean: Tensor, variance: Tensor, n: float) -> Tensor:
    return torch.ones_like(second_moment(mean, variance, n))


def _adam(mean: Tensor, variance: Tensor, n: float) -> Tensor:
    second = second_moment(mean, variance, n)
    return torch.where(second > 0, second.rsqrt(), 0.0)


def _svag(mean: Tensor, variance: Tensor, n: float) -> Tensor:
    second = second_moment(mean, variance, n)
    return torch.where(second > 0, mean.to(torch.float64).square() / second, 0.0)


def _genie(mean: Tensor, variance: Tensor, n: float) -> Tensor:
    second = second_moment(mean, variance, n)
    return torch.where(second > 0, (signal_to_noise(mean, variance) + 1 / n) / second, 0.0)


PRECONDITIONERS: dict[str, PreconditionerFormula] = {"sgd": _sgd, "adam": _adam, "svag": _svag, "genie": _genie}
r"""p of each optimizer, at the true moments; 0 where there is no gradient.

- ``"sgd"``: 1.
- ``"adam"``: :math:`1 / \sqrt{E[g_D^2]}`.
- ``"svag"``: the variance adaptation factor :math:`n r / (n r + 1)`.
- ``"genie"``: :math:`(r + 1/n) / E[g_D^2]`, the form of the theorem; infinite without noise.

The theorem's form is not the implemented trust factor. The optimizer ``GENIE`` multiplies by the factor of SVAG
and by a gate that is nearly 1 at small variance. For that factor the claim needs no assumption:
:math:`R_{SVAG} \ge R_{SGD}` for every toy and n, because it grows with :math:`r`. Dropping the 1/n from the
theorem's form gives the factor of SVAG over :math:`\rho^2`, whose ratio is never below the theorem's.
"""


def factors(mean: Tensor, variance: Tensor, preconditioner: PreconditionerFormula, n: float) -> Tensor:
    """The factors p with largest entry 1. Infinite entries take everything, all at the same rate."""
    second = second_moment(mean, variance, n)
    if not (second > 0).any():
        raise MeasurementError(
            "All gradients are 0, so that the ratio is 0/0; give a mean or a variance above 0."
        )
    p = preconditioner(mean, variance, n)
    if p.shape != second.shape or p.isnan().any() or (p < 0).any():
        raise MeasurementError(
            f"The preconditioner returned shape {tuple(p.shape)} for gradients of shape {tuple(second.shape)}, "
            "or an entry that is NaN or below 0; return one number of at least 0 for each gradient."
        )
    p = torch.where(second > 0, p.to(torch.float64), 0.0)
    if p.isinf().any():
        p = p.isinf().to(torch.float64)
    if not (p > 0).any():
        raise MeasurementError(
            "The preconditioner is 0 wherever there is a gradient, so that no step is taken and the ratio is "
            "0/0; give one that moves a parameter."
        )
    return p / p.max()


def osgr(mean: Tensor, variance: Tensor, preconditioner: PreconditionerFormula, n: float) -> float:
    r"""The ratio :math:`R = \sum_j p_j \mu_j^2 / \sum_j p_j E[g_{D,j}^2]`, in [0, 1].

    Args:
        mean: :math:`\mu_j`.
        variance: :math:`\rho_j^2`.
        preconditioner: a formula of `PRECONDITIONERS` or any function of (mean, variance, n). Only the
            ratios of its entries matter. Infinite entries (``"genie"`` without noise) outweigh all finite ones.
        n: samples in a draw.

    Example:
        >>> mean, variance = torch.tensor([2.0, 1.0]), torch.tensor([1.0, 3.0])
        >>> {name: round(osgr(mean, variance, p, 2), 4) for name, p in PRECONDITIONERS.items()}
        {'sgd': 0.7143, 'adam': 0.6801, 'svag': 0.7911, 'genie': 0.8125}
    """
    p = factors(mean, variance, preconditioner, n)
    signal = p * mean.to(torch.float64).square()
    return (signal.sum() / (p * second_moment(mean, variance, n)).sum()).item()


def weights(mean: Tensor, variance: Tensor, preconditioner: PreconditionerFormula, n: float) -> Tensor:
    r"""The share of each parameter in the training loss decrease, :math:`W_j`; the shares add up to 1.

    Args: as for `osgr`.

    Example:
        >>> weights(torch.tensor([2.0, 1.0]), torch.tensor([1.0, 3.0]), PRECONDITIONERS["genie"], 2)
        tensor([0.8438, 0.1562], dtype=torch.float64)

    Differs from the paper in: its table lists :math:`W_j = 1/|J|` for GENIE. By the definition above GENIE's
    weights are proportional to :math:`r_j + 1/n`; what it makes uniform is each parameter's share of the gap
    :math:`1 - R`, and not its share :math:`r_j / \sum_i (r_i + 1/n)` of :math:`R`.
    """
    p = factors(mean, variance, preconditioner, n)
    share = p * second_moment(mean, variance, n)
    return share / share.sum()


def _check_gsnr(gsnr: Tensor, n: float) -> Tensor:
    check_samples(n)
    if gsnr.numel() == 0 or gsnr.isnan().any() or (gsnr < 0).any():
        raise MeasurementError(
            "gsnr is empty or has an entry that is NaN or below 0; give one ratio of at least 0 for each "
            "parameter and leave out parameters without a gradient."
        )
    return gsnr.to(torch.float64)


def genie_osgr(gsnr: Tensor, n: float) -> float:
    r"""The ratio with the theorem's preconditioner, :math:`1 - 1 / (n\, mean_j(r_j + 1/n))`.

    Args:
        gsnr: :math:`r_j` of each parameter; an infinite one gives 1.
        n: samples in a draw.

    Example:
        >>> genie_osgr(torch.tensor([4.0, 0.5]), 2)
        0.8181818181818181
    """
    return 1 - 1 / (1 + n * _check_gsnr(gsnr, n).mean().item())


def highest_osgr(gsnr: Tensor, n: float) -> float:
    r"""The supremum of R over all preconditioners, :math:`n r_{max} / (n r_{max} + 1)`.

    R is an average of :math:`n r_j / (n r_j + 1)` with weights :math:`W_j`, and a preconditioner can choose the
    weights freely. So the maximiser moves the parameter with the largest GSNR alone.

    Args: as for `genie_osgr`.

    Example:
        >>> gsnr = torch.tensor([4.0, 0.5])
        >>> round(highest_osgr(gsnr, 2), 4), round(genie_osgr(gsnr, 2), 4)
        (0.8889, 0.8182)

    Differs from the paper in: the appendix concludes that GENIE has the highest ratio among preconditioning
    methods. That holds among those with uniform :math:`W_j` only; GENIE reaches the maximum only when all
    :math:`r_j` are equal.
    """
    return 1 - 1 / (1 + n * _check_gsnr(gsnr, n).max().item())
