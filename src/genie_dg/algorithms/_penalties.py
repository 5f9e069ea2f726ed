"""What the objectives with a penalty share: losses of single domains, the weight's two stages, distances
between the features of domains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from genie_dg._types import DomainBatch, Network
from genie_dg.check import InputError

KERNEL_GAMMAS = tuple(10.0**k for k in range(-3, 4))
"""The widths of `kernel_distance`: 0.001, 0.01, ..., 1000."""

Distance = Callable[[Tensor, Tensor], Tensor]
"""Two batches of features ``[n, d]`` and ``[m, d]`` to a scalar."""


def check_pairs(algorithm: str, batch: DomainBatch) -> None:
    """Refuse a batch in which a domain has a single sample."""
    if min(batch.sizes) < 2:
        raise InputError(
            f"{algorithm} got a batch with {batch.sizes} samples per domain; expected 2 or more of each, so "
            "raise the batch size."
        )


def two_stage_weight(step: int, first_steps: float, final: float) -> float:
    """1 in steps 0 to ``first_steps - 1``, then ``final``.

    >>> [two_stage_weight(step, 2, 100.0) for step in range(4)]
    [1.0, 1.0, 100.0, 100.0]
    """
    return final if step >= first_steps else 1.0


def by_domain(logits: Tensor, batch: DomainBatch) -> list[tuple[Tensor, Tensor]]:
    """For each domain its logits and its labels, from the logits of the pooled batch."""
    return list(zip(torch.split(logits, batch.sizes), batch.labels, strict=True))


def losses_of_domains(logits: Tensor, batch: DomainBatch) -> Tensor:
    """The mean cross entropy of each domain, from the logits of the pooled batch."""
    return torch.stack([cross_entropy(z, y) for z, y in by_domain(logits, batch)])


def moment_distance(x: Tensor, y: Tensor) -> Tensor:
    r"""Mean squared difference of the means plus mean squared difference of the covariances.

    .. math:: \frac1d \|\mu_x - \mu_y\|^2 + \frac1{d^2} \|C_x - C_y\|_F^2, \qquad
        C_x = \frac1{n-1} \sum_i (x_i - \mu_x)(x_i - \mu_x)^\top

    >>> x, y = torch.tensor([[0.0], [2.0]]), torch.tensor([[2.0], [6.0]])
    >>> moment_distance(x, y).item()  # means 1 and 4, variances 2 and 8
    45.0
    """
    means = (x.mean(0) - y.mean(0)).square().mean()
    return means + (covariance(x) - covariance(y)).square().mean()


def covariance(x: Tensor) -> Tensor:
    """Of the columns, with ``n - 1``."""
    centred = x - x.mean(0)
    return centred.T @ centred / (len(x) - 1)


def kernel_distance(x: Tensor, y: Tensor) -> Tensor:
    r"""The squared maximum mean discrepancy (biased estimate) under a sum of Gaussian kernels.

    .. math:: \overline{K(x, x)} + \overline{K(y, y)} - 2\,\overline{K(x, y)}, \qquad
        K(a, b) = \sum_\gamma e^{-\gamma \|a - b\|^2}

    A bar is the mean over all pairs, a sample's pair with itself among them; gamma runs over `KERNEL_GAMMAS`.

    >>> x, y = torch.zeros(1, 2), torch.full((1, 2), 100.0)
    >>> kernel_distance(x, y).item()  # 2 x 7 kernels of 1, nothing across
    14.0
    """
    centre = torch.cat([x, y]).mean(0).detach()  # distances do not change, their rounding errors shrink
    x, y = x - centre, y - centre
    return _within(x) + _within(y) - 2 * _kernel(x, y).mean()


def _kernel(x: Tensor, y: Tensor) -> Tensor:
    products = x @ y.T
    squares = x.square().sum(1)[:, None] + y.square().sum(1) - 2 * products
    distances = squares.clamp_min(0.0)
    return torch.stack([torch.exp(-gamma * distances) for gamma in KERNEL_GAMMAS]).sum(0)


def _within(x: Tensor) -> Tensor:
    """The mean of K(x, x); a sample's kernel with itself is set, since rounding would spoil the narrow ones."""
    kernel = _kernel(x, x)
    return (kernel.sum() - kernel.diagonal().sum() + len(KERNEL_GAMMAS) * len(x)) / len(x) ** 2


def mean_over_pairs(features: Sequence[Tensor], distance: Distance) -> Tensor:
    """The mean distance over all pairs of domains; 0 when there is one domain only.

    Computed in float32 or float64 also inside autocast: products in half precision would drown the distances.
    """
    with torch.autocast(features[0].device.type, enabled=False):
        full = [z.float() if z.dtype.itemsize < 4 else z for z in features]
        pairs = [distance(x, y) for x, y in combinations(full, 2)]
        return torch.stack(pairs).mean() if pairs else full[0].new_zeros(())


def aligned_loss(network: Network, batch: DomainBatch, gamma: float, distance: Distance) -> Tensor:
    """The mean over domains of the cross entropy plus ``gamma`` times the mean distance of their features.

    Each domain is a forward pass of its own.
    """
    features = [network.features(images) for images in batch.images]
    losses = [cross_entropy(network.head(z), y) for z, y in zip(features, batch.labels, strict=True)]
    return torch.stack(losses).mean() + gamma * mean_over_pairs(features, distance)
