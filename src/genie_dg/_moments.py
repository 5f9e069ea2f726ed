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

The functions take Python numbers or zero-dimensional tensors for their scalars, so that one text serves
eager code, CUDA graphs and ``torch.compile``.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

FLOOR = 1e-8
"""Variances at or below zero become this; also the guard of the trust ratio's denominator."""

Scalar: TypeAlias = "float | Tensor"


class Averaging(NamedTuple):
    """What the step count makes of the decay: see the module's formulas."""

    beta: Scalar
    weight: Scalar
    inverse_correction: Scalar  # 1 / c
    inverse_freedom: Scalar  # 1 / (1 - rho), and 0 when there is one sample
    rho: Scalar


def averaging(beta: float, step: Scalar) -> Averaging:
    """The scalars of step t; a tensor step gives tensors and never waits for the device.

    >>> a = averaging(0.95, 2)
    >>> round(a.rho, 6), round(a.inverse_freedom, 6)
    (0.500329, 2.001316)
    """
    power = beta**step
    rho = (1 - beta) * (1 + power) / ((1 + beta) * (1 - power))
    freedom: Scalar
    if isinstance(rho, Tensor):
        single = rho >= 1 - 1e-6
        freedom = torch.where(single, 0.0, 1 / torch.where(single, 1.0, 1 - rho))
    else:
        freedom = 0.0 if rho >= 1 - 1e-6 else 1 / (1 - rho)
    return Averaging(beta, 1 - beta, 1 / (1 - power), freedom, rho)


def advance_moments(g: Tensor, m: Tensor, v: Tensor, a: Averaging) -> tuple[Tensor, Tensor]:
    """The two averages after one more gradient; v may overflow, m cannot."""
    return m * a.beta + g * a.weight, v * a.beta + g * g * a.weight


def safe_square(x: Tensor) -> Tensor:
    """x^2, held below a quarter of the largest number."""
    return (x * x).clamp(max=torch.finfo(x.dtype).max / 4)


def variance(v: Tensor, mean: Tensor, a: Averaging) -> Tensor:
    """s^2 for any finite input. What overflows counts as noise: it ends large, not at the floor."""
    largest = torch.finfo(v.dtype).max
    second = (v * a.inverse_correction).clamp(max=largest / 2)
    s2 = (second - safe_square(mean)) * a.inverse_freedom
    return torch.threshold(s2.clamp(max=largest), 0.0, FLOOR)


def trust(mean_square: Tensor, s2: Tensor, rho: Scalar) -> Tensor:
    """Q = 1 / (1 + rho s^2 / (mean^2 + 1e-8)), written with one division.

    With :math:`1/\\rho` the effective number of samples n and r the GSNR this is n r / (n r + 1).
    """
    signal = mean_square + FLOOR
    return signal / (signal + s2 * rho)


def gate(s2: Tensor) -> Tensor:
    """The gate a = tanh(min(1/s^2, 10)) of the released formulation; exactly 1 in float32 where s^2 <= 0.1."""
    return torch.tanh((1.0 / s2).clamp(max=10.0))


def printed(square: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Variance, gate and trust of the paper's Algorithm 1 as printed, from the raw moments m^2 and v.

    s^2 = v - m^2, a = tanh(1/s^2) and q = m^2 / v, with the floor under both divisions.
    """
    s2 = (v - square).clamp(min=FLOOR)
    return s2, torch.tanh(1.0 / s2), square / v.clamp(min=FLOOR)
