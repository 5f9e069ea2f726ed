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

**The claim R_GENIE >= R_p.** Let :math:`\langle r \rangle` be the mean of :math:`r` with weights
:math:`p_j \rho_j^2`. Then :math:`R = n \langle r \rangle / (n \langle r \rangle + 1)`. GENIE's weights are all
equal. So :math:`R_{GENIE} \ge R_p` exactly when :math:`\langle r \rangle` is at most the plain mean of
:math:`r`. For SGD this says :math:`Cov_j(r_j, \rho_j^2) \le 0`, and :math:`n` plays no part. The claim is true
with uniform weights :math:`W_j` and false in general (`counterexample`); its second condition is not sufficient
for finite n (`dropped_term_counterexample`).

All functions compute in float64. A parameter with mean 0 and variance 0 has no gradient: it counts as absent
from :math:`J`. Variance 0 with a mean is the limit :math:`\rho_j^2 \to 0`: :math:`r_j` is infinite.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from .request import PaperError

PreconditionerFormula: TypeAlias = Callable[[Tensor, Tensor, float], Tensor]
"""p as a function of (mean, variance, n)."""


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
    mean, variance = mean.to(torch.float64), variance.to(torch.float64)
    second = mean.square() + variance / n
    if not (n > 0 and second.isfinite().all() and (variance >= 0).all()):
        raise PaperError(
            f"Got n={n:g}, or moments that are not finite, or a variance below 0; give n above 0, finite means "
            "and finite variances of at least 0."
        )
    return second


def signal_to_noise(mean: Tensor, variance: Tensor) -> Tensor:
    r"""The GSNR :math:`r_j = \mu_j^2 / \rho_j^2`: infinite without noise, NaN without a gradient.

    Example:
        >>> signal_to_noise(torch.tensor([3.0, 1.0, 0.0]), torch.tensor([2.0, 0.0, 0.0]))
        tensor([4.5000,    inf,    nan], dtype=torch.float64)
    """
    return mean.to(torch.float64).square() / variance.to(torch.float64)


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


class Components(NamedTuple):
    r"""A row of the paper's Table 1: a preconditioner as a convergence part times an alignment part.

    Each is a function of (mean, variance, n). The alignment part of Adam, :math:`\sqrt{n r / (n r + 1)}`, is
    the root of SVAG's factor, which GENIE's code applies and the table does not have; GENIE's,
    :math:`r + 1/n`, has no upper bound.

    Example:
        >>> mean, variance = torch.tensor([2.0]), torch.tensor([4.0])
        >>> one = COMPONENTS["genie"]  # E[g_D^2] is 4 + 4/2, r is 1
        >>> one.convergence(mean, variance, 2).item() * one.alignment(mean, variance, 2).item()
        0.25
    """

    convergence: PreconditionerFormula
    alignment: PreconditionerFormula
    product: PreconditionerFormula


def _inverse_mean(mean: Tensor, variance: Tensor, n: float) -> Tensor:
    size = mean.to(torch.float64).abs()
    return torch.where(size > 0, 1 / size, 0.0)


def _inverse_second_moment(mean: Tensor, variance: Tensor, n: float) -> Tensor:
    second = second_moment(mean, variance, n)
    return torch.where(second > 0, 1 / second, 0.0)


def _root_of_trust(mean: Tensor, variance: Tensor, n: float) -> Tensor:
    return PRECONDITIONERS["svag"](mean, variance, n).sqrt()


def _shifted_gsnr(mean: Tensor, variance: Tensor, n: float) -> Tensor:
    return signal_to_noise(mean, variance).nan_to_num(0.0, posinf=torch.inf) + 1 / n


COMPONENTS: dict[str, Components] = {
    "sgd": Components(PRECONDITIONERS["sgd"], PRECONDITIONERS["sgd"], PRECONDITIONERS["sgd"]),
    "adam": Components(_inverse_mean, _root_of_trust, PRECONDITIONERS["adam"]),
    "svag": Components(PRECONDITIONERS["sgd"], PRECONDITIONERS["svag"], PRECONDITIONERS["svag"]),
    "genie": Components(_inverse_second_moment, _shifted_gsnr, PRECONDITIONERS["genie"]),
}
"""By name. A weight with a mean gradient of 0 has convergence part 0 in Adam's row, where the table has 1/0."""


def factors(mean: Tensor, variance: Tensor, preconditioner: PreconditionerFormula, n: float) -> Tensor:
    """The factors p with largest entry 1. Infinite entries take everything, all at the same rate."""
    second = second_moment(mean, variance, n)
    p = torch.where(second > 0, preconditioner(mean, variance, n).to(torch.float64), 0.0)
    if p.isinf().any():
        p = p.isinf().to(torch.float64)
    if not (p > 0).any():
        raise PaperError(
            "The preconditioner or the gradient is 0 everywhere, so that no step is taken and the ratio is "
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


def genie_osgr(gsnr: Tensor, n: float) -> float:
    r"""The ratio with the theorem's preconditioner, :math:`1 - 1 / (n\, mean_j(r_j + 1/n))`.

    Args:
        gsnr: :math:`r_j` of each parameter; an infinite one gives 1.
        n: samples in a draw.

    Example:
        >>> genie_osgr(torch.tensor([4.0, 0.5]), 2)
        0.8181818181818181
    """
    return 1 - 1 / (1 + n * gsnr.to(torch.float64).mean().item())


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
    return _example([1.0, math.sqrt(1 / (64 * (n + 1)) / 16)], [1.0, 1 / 16], n)
