r"""How evenly something is shared among the weights, at three granularities.

One number for each weight (how far it moved, its share of the generalization gap) is compared weight by
weight, by tensor, or by groups of consecutive weights as in the paper's Figure 1; of a tensor or group the mean
counts. The number is the Gini coefficient of `updates`: 0 when all are alike.

The paper's own sense of balance is about the gap 1 - R (see `theory`): with a preconditioner p each weight's
share of it is

.. math::
    \frac{p_j \rho_j^2}{\sum_i p_i \rho_i^2} ,

which eq. 5, :math:`p = 1/\rho^2`, makes uniform.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from genie_dg.check import whole_number

from ._functional import MeasurementError
from .updates import gini

GROUPS = 120
"""Groups of the heatmap of Figure 1."""

GRANULARITIES = ("weight", "tensor", "group")


def evenness(values: Tensor, sizes: Sequence[int], groups: int = GROUPS) -> dict[str, float]:
    """The Gini coefficient of non-negative numbers by weight, by tensor and by group.

    Args:
        values: one number for each weight, tensor after tensor.
        sizes: the sizes of the tensors.
        groups: how many groups; group b starts at weight ``b n // groups``.

    Example:
        >>> evenness(torch.tensor([0.0, 4.0, 2.0, 2.0]), [2, 2], groups=2)
        {'weight': 0.375, 'tensor': 0.0, 'group': 0.0}
    """
    whole_number("groups", groups, error=MeasurementError)
    n = values.numel()
    if sum(sizes) != n:
        raise MeasurementError(
            f"The sizes add up to {sum(sizes)}; got {n} numbers, so give one for each weight."
        )
    groups = min(groups, n)
    edges = [b * n // groups for b in range(groups + 1)]
    by_group = [edges[b + 1] - edges[b] for b in range(groups)]
    return {
        "weight": gini(values),
        "tensor": gini(_means(values, sizes)),
        "group": gini(_means(values, by_group)),
    }


def _means(values: Tensor, sizes: Sequence[int]) -> Tensor:
    return torch.stack([part.double().mean() for part in torch.split(values.flatten(), list(sizes))])


def gap_shares(p: Tensor, variance: Tensor) -> Tensor:
    """Each weight's share of the gap 1 - R; the shares add up to 1.

    >>> gap_shares(torch.tensor([1.0, 1.0]), torch.tensor([3.0, 1.0]))
    tensor([0.7500, 0.2500], dtype=torch.float64)
    """
    if p.shape != variance.shape:
        raise MeasurementError(
            f"p has shape {tuple(p.shape)} and variance {tuple(variance.shape)}; give two of one length."
        )
    share = p.double() * variance.double()
    if not (share.sum() > 0 and (share >= 0).all()):
        raise MeasurementError(
            "p times variance is negative somewhere or zero everywhere, so that there is no gap to share; give "
            "factors and variances of at least 0, some above."
        )
    return share / share.sum()
