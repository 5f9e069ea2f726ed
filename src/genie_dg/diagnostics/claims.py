r"""The paper's claim R_GENIE >= R_SGD: when it holds, when it does not.

Notation as in `theory`. Let :math:`\langle r \rangle` be the mean of :math:`r` with weights
:math:`p_j \rho_j^2`. Then :math:`R = n \langle r \rangle / (n \langle r \rangle + 1)`. GENIE's weights are all
equal. So :math:`R_{GENIE} \ge R_p` exactly when :math:`\langle r \rangle` is at most the plain mean of
:math:`r` (`gsnr_excess`). For SGD this says :math:`Cov_j(r_j, \rho_j^2) \le 0`, and :math:`n` plays no part.
The paper's claim :math:`R_{GENIE} \ge R_{SGD}` is true with uniform weights :math:`W_j` and false in general
(`counterexample`); its second condition is not sufficient for finite n (`dropped_term_counterexample`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ._functional import MeasurementError
from .theory import (
    PRECONDITIONERS,
    PreconditionerFormula,
    check_samples,
    factors,
    osgr,
    second_moment,
    signal_to_noise,
    weights,
)


def gsnr_excess(mean: Tensor, variance: Tensor, preconditioner: PreconditionerFormula, n: float) -> float:
    r"""How far the preconditioner's own mean of :math:`r` lies above the plain mean; GENIE has 0.

    .. math::
        \frac{\sum_j p_j \rho_j^2 r_j}{\sum_j p_j \rho_j^2} - \frac{1}{|J|} \sum_j r_j

    :math:`R_{GENIE} \ge R_p` exactly when this is at most 0. For SGD it is :math:`Cov_j(r_j, \rho_j^2)` over
    the mean variance, whatever n is.

    The arguments are those of `osgr`; every parameter needs a variance above 0.

    Example:
        >>> mean, variance = torch.tensor([2.0, 1.0]), torch.tensor([1.0, 3.0])
        >>> round(gsnr_excess(mean, variance, PRECONDITIONERS["sgd"], 2), 4)
        -0.9167
    """
    noise = factors(mean, variance, preconditioner, n) * variance.to(torch.float64)
    if not (variance > 0).all():
        raise MeasurementError(
            "A parameter has variance 0; leave out parameters without noise, because their GSNR has no finite "
            "mean."
        )
    r = signal_to_noise(mean, variance)
    return ((noise * r).sum() / noise.sum() - r.mean()).item()


def uniform_weights_hold(
    mean: Tensor, variance: Tensor, preconditioner: PreconditionerFormula, n: float, tolerance: float = 1e-9
) -> bool:
    r"""The first assumption of the proof of :math:`R_{GENIE} \ge R_p`: :math:`W_j = 1/|J|` for all j.

    It is sufficient for every n, by Jensen's inequality for :math:`1 / (r_j + 1/n)`.

    Args: as for `osgr`, and
        tolerance: how far :math:`|J| W_j` may be from 1.

    Example:
        >>> mean = torch.tensor([2.0, 1.0])  # the second moments are 5 and 5 with n = 1, 4.5 and 3 with n = 2
        >>> [uniform_weights_hold(mean, torch.tensor([1.0, 4.0]), PRECONDITIONERS["sgd"], n) for n in (1, 2)]
        [True, False]
    """
    w = weights(mean, variance, preconditioner, n)[second_moment(mean, variance, n) > 0]
    return bool(((w * w.numel() - 1).abs() <= tolerance).all())


def dominance_holds(
    mean: Tensor, variance: Tensor, preconditioner: PreconditionerFormula, n: float, *, drop: bool = True
) -> bool:
    r"""The second condition of the proof: one parameter's GSNR dominates, and does not have all the weight.

    .. math::
        (1 - W_{max})\, r_{max} \ge |J|\, r'_{max}

    :math:`r'_{max}` is the second largest GSNR, and :math:`W_{max}` the weight of the largest.

    Args: as for `osgr`, and
        drop: leave out the 1/n, as the paper does. For no finite n is the condition then sufficient: see
            `dropped_term_counterexample`. With ``False`` each :math:`r` becomes :math:`r + 1/n`; the same proof
            then holds for every n, and :math:`R_{GENIE} \ge R_p`.

    Example:
        >>> mean, variance = torch.tensor([3.0, 1.0]), torch.tensor([1.0, 10.0])  # W is 10/21 and 11/21
        >>> [dominance_holds(mean, variance, PRECONDITIONERS["sgd"], 1, drop=drop) for drop in (True, False)]
        [True, True]

    A noise-free parameter is the exception that needs no condition: GENIE's ratio is then 1.
    """
    live = second_moment(mean, variance, n) > 0
    w = weights(mean, variance, preconditioner, n)[live]
    r, order = signal_to_noise(mean, variance)[live].sort(descending=True)
    if r[0].isinf() or r.numel() == 1:
        return True
    shift = 0.0 if drop else 1 / n
    return bool((1 - w[order[0]]) * (r[0] + shift) >= r.numel() * (r[1] + shift))


@dataclass(frozen=True, eq=False)
class Counterexample:
    """A toy in which a claim fails, and the ratios of SGD and GENIE there."""

    mean: Tensor
    variance: Tensor
    n: float
    sgd: float
    genie: float


def _example(mean: list[float], variance: list[float], n: float) -> Counterexample:
    m, v = torch.tensor(mean, dtype=torch.float64), torch.tensor(variance, dtype=torch.float64)
    return Counterexample(
        m, v, n, osgr(m, v, PRECONDITIONERS["sgd"], n), osgr(m, v, PRECONDITIONERS["genie"], n)
    )


def counterexample() -> Counterexample:
    r"""A toy with :math:`R_{SGD} > R_{GENIE}`.

    The first parameter has the larger GSNR (2 against 1/4) *and* the larger variance (8 against 1), so the two
    are positively correlated. SGD gives it 36/37 of the weight. GENIE divides by the variance and gives it
    9/11: it takes weight away from the parameter that generalizes best. Neither condition of the paper holds.
    Adam (5/6) is above GENIE, too.

    Example:
        >>> toy = counterexample()
        >>> round(toy.sgd, 4), round(toy.genie, 4)
        (0.8784, 0.8182)
    """
    return _example([4.0, 0.5], [8.0, 1.0], 4)


def dropped_term_counterexample(n: float = 4) -> Counterexample:
    r"""For any n a toy that meets `dominance_holds` as printed, with :math:`R_{SGD} > R_{GENIE}`.

    GSNR :math:`(1, 1/(64 (n+1)))` and variance :math:`(1, 1/16)` are positively correlated, so SGD has the
    larger ratio. The second weight is near :math:`1/(16 (n+1))`, which exceeds :math:`2 r'_{max}`, so the
    condition holds. What fails is the step that drops 1/n beside :math:`r'_{max}`: that needs
    :math:`n r'_{max} \gg 1`. In the toys of this family :math:`n (R_{SGD} - R_{GENIE})` tends to 15/16 and not
    to 0 as n grows. Without the 1/n the proof is right: for SGD the condition with the weights of infinite n,
    :math:`\mu_j^2 / \sum_i \mu_i^2`, gives :math:`R_{GENIE} \ge R_{SGD}` for every n.

    Args:
        n: samples in a draw.

    Example:
        >>> toy = dropped_term_counterexample(100)
        >>> dominance_holds(toy.mean, toy.variance, PRECONDITIONERS["sgd"], 100)
        True
        >>> round(toy.sgd, 4), round(toy.genie, 4)
        (0.9895, 0.9804)
    """
    check_samples(n)
    return _example([1.0, math.sqrt(1 / (64 * (n + 1)) / 16)], [1.0, 1 / 16], n)
