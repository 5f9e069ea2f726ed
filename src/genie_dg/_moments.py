r"""Two moving averages of a gradient and what follows from them: the definitions, in one place.

With decay :math:`\beta` and :math:`t = 1, 2, \dots`

.. math::
    m \leftarrow \beta m + (1-\beta) g, \qquad v \leftarrow \beta v + (1-\beta) g^2 ,

.. math::
    c = 1 - \beta^t, \qquad
    \rho = \frac{(1-\beta)(1+\beta^t)}{(1+\beta)(1-\beta^t)}, \qquad
    \bar g = m / c, \qquad
    s^2 = \frac{v/c - \bar g^2}{1-\rho} .

:math:`\rho` is the sum of the squared weights of the normalised moving average, so that
:math:`\mathrm{Var}[\bar g] = \rho\,\mathrm{Var}[g]` and :math:`s^2` is unbiased. With one sample
(:math:`t = 1`, or :math:`\beta = 0`) there is no variance: :math:`\rho = 1`, and :math:`s^2` is the floor.

Where the gradient hardly changes, :math:`d = v/c - \bar g^2` cancels and rounding is left of it, at most
:math:`R = 4 \epsilon n\, v/c` with :math:`\epsilon` the machine epsilon of the dtype of the computation and
:math:`n = 1/\rho` the effective number of samples: each step of the two averages rounds by about
:math:`\epsilon`, and n of them count. So d counts as :math:`\max(\min(d, 2(d - R)), 0)`: not at all up to R,
in full from 2R on, and without a jump between. That changes the trust by a few :math:`\epsilon`, and a
constant gradient has the variance 0 in whatever order its sums were rounded.

The functions take Python numbers or zero-dimensional tensors for their scalars, so that one text serves
eager code, CUDA graphs and ``torch.compile``.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from ._constants import FLOOR as FLOOR
from ._constants import HIGHEST_INVERSE, ROUNDING, SINGLE

Scalar: TypeAlias = "float | Tensor"


class Averaging(NamedTuple):
    """What the step count makes of the decay: see the module's formulas."""

    beta: Scalar
    weight: Scalar
    inverse_correction: Scalar  # 1 / c
    inverse_freedom: Scalar  # 1 / (1 - rho), and 0 when there is one sample
    rho: Scalar
    least: Scalar  # the variance of a single sample, and 0 when there are more


def averaging(beta: float, step: Scalar) -> Averaging:
    """The scalars of step t; a tensor step gives tensors and never waits for the device.

    >>> a = averaging(0.95, 2)
    >>> round(a.rho, 6), round(a.inverse_freedom, 6)
    (0.500329, 2.001316)
    """
    power = beta**step
    rho = (1 - beta) * (1 + power) / ((1 + beta) * (1 - power))
    freedom: Scalar
    least: Scalar
    if isinstance(rho, Tensor):
        single = rho >= 1 - SINGLE
        freedom = torch.where(single, 0.0, 1 / torch.where(single, 1.0, 1 - rho))
        least = torch.where(single, FLOOR, 0.0)
    else:
        freedom, least = (0.0, FLOOR) if rho >= 1 - SINGLE else (1 / (1 - rho), 0.0)
    return Averaging(beta, 1 - beta, 1 / (1 - power), freedom, rho, least)


def advance_moments(g: Tensor, m: Tensor, v: Tensor, a: Averaging) -> tuple[Tensor, Tensor]:
    """The two averages after one more gradient; v may overflow, m cannot."""
    return m * a.beta + g * a.weight, v * a.beta + g * g * a.weight


def safe_square(x: Tensor) -> Tensor:
    """x^2, held below a quarter of the largest number."""
    return (x * x).clamp(max=torch.finfo(x.dtype).max / 4)


def doubled(a: Averaging, dtype: torch.dtype) -> Scalar:
    """2 (1 - R) with R as a share of the mean square, in the dtype of the computation."""
    return 2.0 - 2.0 * ROUNDING * torch.finfo(dtype).eps / a.rho


def spread(second: Tensor, mean: Tensor, a: Averaging) -> Tensor:
    """The mean square less the squared mean, 0 where that is within rounding of 0.

    What overflows counts as noise: it ends large, not at 0.
    """
    square, largest = mean * mean, torch.finfo(second.dtype).max
    d = torch.nan_to_num(second - square, largest / 4, largest / 4, largest / 4)
    twice = second * doubled(a, second.dtype) - (square + square)
    return torch.minimum(d, torch.nan_to_num(twice, largest / 2, largest / 2, largest / 2)).clamp(min=0.0)


def variance(v: Tensor, mean: Tensor, a: Averaging) -> Tensor:
    """s^2 for any finite input."""
    s2 = spread(v * a.inverse_correction, mean, a) * a.inverse_freedom
    return s2.clamp(max=torch.finfo(v.dtype).max).clamp(min=a.least)


def trust(mean_square: Tensor, s2: Tensor, rho: Scalar) -> Tensor:
    """Q = 1 / (1 + rho s^2 / (mean^2 + 1e-8)), written with one division.

    With :math:`1/\\rho` the effective number of samples n and r the GSNR this is n r / (n r + 1).
    """
    signal = mean_square + FLOOR
    return signal / (signal + s2 * rho)


def gate(s2: Tensor) -> Tensor:
    """The gate a = tanh(min(1/s^2, 10)) of the released formulation; exactly 1 in float32 where s^2 <= 0.1.

    Where denormal numbers are flushed to zero, a variance of no size may be -0.

    >>> gate(torch.tensor([-0.0, 0.0, 0.5]))
    tensor([1.0000, 1.0000, 0.9640])
    """
    return torch.tanh((1.0 / s2).abs().clamp(max=HIGHEST_INVERSE))


def inverse_variance(s2: Tensor, typical: Scalar) -> Tensor:
    """The preconditioner 1 / s^2 of the paper's eq. 5, in units of the tensor's mean variance and at most 10.

    Written as typical / (s^2 + typical / 10), so that one entry of no variance does not take the whole step.
    """
    scale = torch.as_tensor(typical, dtype=s2.dtype, device=s2.device)
    below = s2 + scale * 0.1
    return torch.where(below > 0, scale / torch.where(below > 0, below, 1.0), 1.0)


GRADIENT_SIZE = 1e-2
"""The size to which ``scale_free`` brings the gradient of every weight."""

NEUTRAL_LR = 0.015
"""The ``lr`` at which ``scale_free`` takes the estimated distance as it is."""


def to_one_size(size: Tensor, power: Scalar) -> Tensor:
    """What ``scale_free`` multiplies a gradient by: `GRADIENT_SIZE` over its size, 0 where it had none.

    ``size`` is the root of the average square that started at 0, ``power`` is beta^t.
    """
    target = GRADIENT_SIZE * (1 - power) ** 0.5
    by = target.to(device=size.device, dtype=size.dtype) if isinstance(target, Tensor) else target
    return torch.where(size > 1e-30, by / size.clamp(min=1e-30), 0.0)


def printed(m: Tensor, v: Tensor, a: Averaging) -> tuple[Tensor, Tensor, Tensor]:
    """Variance, gate and trust of the paper's Algorithm 1 as printed, from the raw moments.

    s^2 = v - m^2, a = tanh(1/s^2) and q = m^2 / v, with the floor under both divisions.
    """
    s2 = spread(v, m, a).clamp(min=FLOOR)
    square = (m * m).clamp(max=torch.finfo(m.dtype).max)
    return s2, torch.tanh(1.0 / s2), square / v.clamp(min=FLOOR)
