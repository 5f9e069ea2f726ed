r"""The paper's Table 1: a preconditioner as a convergence part times an alignment part.

.. list-table::
   :header-rows: 1

   * - optimizer
     - convergence
     - alignment
   * - SGD
     - 1
     - 1
   * - Adam
     - :math:`1 / |E[g_j]|`
     - :math:`\sqrt{n r_j / (n r_j + 1)}`
   * - SVAG (not in the table; the factor that GENIE's code applies)
     - 1
     - :math:`n r_j / (n r_j + 1)`
   * - GENIE
     - :math:`1 / E[g_{D,j}^2]`
     - :math:`r_j + 1/n`

Notation as in `theory`. The product of a row is that entry of `theory.PRECONDITIONERS`. The alignment part of
Adam is the root of SVAG's factor; GENIE's has no upper bound.

Example:
    >>> mean, variance = torch.tensor([2.0]), torch.tensor([4.0])
    >>> one = COMPONENTS["genie"]  # E[g_D^2] is 4 + 4/2, r is 1
    >>> one.convergence(mean, variance, 2).item() * one.alignment(mean, variance, 2).item()
    0.25
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .theory import PRECONDITIONERS, PreconditionerFormula, second_moment, signal_to_noise


class Components(NamedTuple):
    """The two parts, each a function of (mean, variance, n), and their product."""

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
