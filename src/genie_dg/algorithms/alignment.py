"""MMD, CORAL and CausIRL: the features of domains, or of mixtures of them, get the same distribution."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import final

import torch
from torch import Tensor

from genie_dg._types import MAIN, DomainBatch, Network, Objective, StepContext
from genie_dg.check import number
from genie_dg.search_space import LogUniform, Setting

from .algorithm import Algorithm, AlgorithmRow, OneLoss, at_least_float32

_GAMMAS = tuple(10.0**k for k in range(-3, 4))


def moment_distance(x: Tensor, y: Tensor) -> Tensor:
    r"""Mean squared difference of the means plus mean squared difference of the covariances.

    .. math:: \frac1d \|\mu_x - \mu_y\|^2 + \frac1{d^2} \|C_x - C_y\|_F^2, \qquad
        C_x = \frac1{n-1} \sum_i (x_i - \mu_x)(x_i - \mu_x)^\top

    >>> x, y = torch.tensor([[0.0], [2.0]]), torch.tensor([[2.0], [6.0]])
    >>> moment_distance(x, y).item()  # means 1 and 4, variances 2 and 8
    45.0
    """
    means = (x.mean(0) - y.mean(0)).square().mean()
    return means + (_covariance(x) - _covariance(y)).square().mean()


def _covariance(x: Tensor) -> Tensor:
    centred = x - x.mean(0)
    return centred.T @ centred / (len(x) - 1)


def kernel_distance(x: Tensor, y: Tensor) -> Tensor:
    r"""The squared maximum mean discrepancy (biased estimate) under a sum of Gaussian kernels.

    .. math:: \overline{K(x, x)} + \overline{K(y, y)} - 2\,\overline{K(x, y)}, \qquad
        K(a, b) = \sum_\gamma e^{-\gamma \|a - b\|^2}

    A bar is the mean over all pairs, a sample's pair with itself among them; gamma is 0.001, 0.01, ..., 1000.

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
    return torch.stack([torch.exp(-gamma * distances) for gamma in _GAMMAS]).sum(0)


def _within(x: Tensor) -> Tensor:
    """The mean of K(x, x); a sample's kernel with itself is set, since rounding would spoil the narrow ones."""
    kernel = _kernel(x, x)
    return (kernel.sum() - kernel.diagonal().sum() + len(_GAMMAS) * len(x)) / len(x) ** 2


def mean_over_pairs(features: Sequence[Tensor], distance: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """The mean distance over all pairs of domains; 0 when there is one domain only.

    Computed in float32 or float64 also inside autocast: products in half precision would drown the distances.
    """
    with torch.autocast(features[0].device.type, enabled=False):
        full = [at_least_float32(z) for z in features]
        pairs = [distance(x, y) for x, y in combinations(full, 2)]
        return torch.stack(pairs).mean() if pairs else full[0].new_zeros(())


class Matching(Algorithm):
    """An algorithm with ``mmd_gamma`` times a distance of features; the name is the public code's for all."""

    def __init__(self, network: Network, domains: int, *, mmd_gamma: float = 1.0) -> None:
        super().__init__(network, domains)
        self.mmd_gamma = number("mmd_gamma", mmd_gamma, 0)

    @staticmethod
    @abstractmethod
    def distance(x: Tensor, y: Tensor) -> Tensor:
        """Features ``[n, d]`` and ``[m, d]`` of two domains, or of two mixtures, to a scalar."""


class Alignment(Matching, OneLoss):
    r"""Mean loss of the domains plus the distances between their features.

    .. math:: L = \frac1D \sum_d R_d + \gamma \frac{2}{D(D-1)} \sum_{a<b} \mathrm{distance}(z_a, z_b)

    R_d is the mean cross entropy of domain d and :math:`z_d` its features, each domain a forward pass of its
    own.

    Args:
        mmd_gamma: :math:`\gamma`, named as in the public code for both.
    """

    def loss(self, batch: DomainBatch, context: StepContext) -> Tensor:
        features = [self.network.features(images) for images in batch.images]
        losses = self.losses_of_domains(map(self.network.head, features), batch.labels)
        return losses.mean() + self.mmd_gamma * mean_over_pairs(features, self.distance)


@final
class MMD(Alignment):
    """`Alignment` by `kernel_distance`, which is never negative.

    Differs from the paper in that only its discrepancy is used, as in the public code (DomainBed): there is no
    autoencoder and no adversarial prior. The discrepancy is that of Gretton et al., A Kernel Two-Sample Test,
    JMLR 2012.
    """

    distance = staticmethod(kernel_distance)


@final
class CORAL(Alignment):
    """`Alignment` by `moment_distance`.

    Differs from the paper in three things, as the public code (DomainBed) does: the means are compared too; the
    squared Frobenius norm is divided by d^2, not by 4 d^2; and the distance is the mean over all pairs of
    training domains, not that of one source and one target.
    """

    least_samples = 2
    distance = staticmethod(moment_distance)


def random_cuts(sizes: list[int], generator: torch.Generator) -> list[int]:
    """For each domain how many of its samples go to the first mixture: any number from 0 to ``size - 1``.

    >>> cuts = [random_cuts([2, 1], torch.Generator().manual_seed(k)) for k in range(20)]
    >>> {first for first, _ in cuts}, {second for _, second in cuts}
    ({0, 1}, {0})
    """
    return [int(torch.randint(size, (), generator=generator)) for size in sizes]


class Mixtures(Matching):
    r"""Mean loss of the domains plus the distance between the features of two mixtures of the domains.

    .. math::
        L = \frac1D \sum_d R_d + \gamma\, \mathrm{distance}\Big(
            \bigcup_d z_d[{:}s_d],\; \bigcup_d z_d[s_d{:}] \Big), \qquad s_d \sim U\{0, \dots, n_d - 1\}

    R_d is the mean cross entropy of domain d and :math:`z_d` its :math:`n_d` features, each domain a forward
    pass of its own. The places :math:`s_d` where the domains are cut are drawn anew each step, so the two
    mixtures have the domains in different proportions. A mixture of fewer than two samples has no covariance:
    there is no penalty in such a step.

    Args:
        mmd_gamma: :math:`\gamma`, named as in the public code for both.
    """

    def objectives(self, batch: DomainBatch, context: StepContext) -> Iterator[Objective]:
        cuts = random_cuts(batch.sizes, context.generator())
        enough = 2 <= sum(cuts) <= sum(batch.sizes) - 2

        def loss() -> Tensor:
            features = [self.network.features(images) for images in batch.images]
            loss = self.losses_of_domains(map(self.network.head, features), batch.labels).mean()
            if not enough:
                return loss
            first = torch.cat([z[:cut] for z, cut in zip(features, cuts, strict=True)])
            second = torch.cat([z[cut:] for z, cut in zip(features, cuts, strict=True)])
            return loss + self.mmd_gamma * mean_over_pairs([first, second], self.distance)

        yield Objective(MAIN, loss)


@final
class CausIRLMMD(Mixtures):
    """`Mixtures` by `kernel_distance`.

    The paper compares mixtures of the domains in two proportions; that random cuts of the batch make them is
    DomainBed's code. Differs from that code in that a distance that is not a number is not hidden; there it
    counts as 0.
    """

    distance = staticmethod(kernel_distance)


@final
class CausIRLCORAL(Mixtures):
    """`Mixtures` by `moment_distance`.

    Differs from the paper and from DomainBed's code in what `CausIRLMMD` does, and from the paper on CORAL in
    what `CORAL` does.
    """

    distance = staticmethod(moment_distance)


_SPACE = {"mmd_gamma": Setting(1.0, LogUniform(-1, 1))}
_ONE_SOURCE = "With one source domain {} equals ERM: there is no second domain to compare features with."
MMD_ROW = AlgorithmRow(
    "MMD",
    MMD,
    "Li et al., Domain Generalization with Adversarial Feature Learning, CVPR 2018",
    _SPACE,
    one_source=_ONE_SOURCE.format("MMD"),
    domainbed=1e-10,
)
CORAL_ROW = AlgorithmRow(
    "CORAL",
    CORAL,
    "Sun, Saenko, Deep CORAL: Correlation Alignment for Deep Domain Adaptation, ECCV Workshops 2016",
    _SPACE,
    one_source=_ONE_SOURCE.format("CORAL"),
    domainbed=1e-10,
)
_MIXTURES_PAPER = (
    "Chevalley et al., Invariant Causal Mechanisms through Distribution Matching, arXiv 2206.11646, 2022"
)
_MIXTURES_SPACE = {"mmd_gamma": Setting(1.0, LogUniform(-1, 1), "DomainBed")}
_MIXTURES_ONE_SOURCE = (
    "With one source domain {} compares that domain with itself: both parts have one distribution."
)
CAUSIRL_MMD_ROW = AlgorithmRow(
    "CausIRL-MMD",
    CausIRLMMD,
    _MIXTURES_PAPER,
    _MIXTURES_SPACE,
    domainbed=1e-10,
    one_source=_MIXTURES_ONE_SOURCE.format("CausIRL-MMD"),
)
CAUSIRL_CORAL_ROW = AlgorithmRow(
    "CausIRL-CORAL",
    CausIRLCORAL,
    _MIXTURES_PAPER,
    _MIXTURES_SPACE,
    domainbed=1e-10,
    one_source=_MIXTURES_ONE_SOURCE.format("CausIRL-CORAL"),
)
