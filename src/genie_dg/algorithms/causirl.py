"""CausIRL with MMD or CORAL: two random mixtures of the domains get features of the same distribution."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import final

import torch
from torch import Tensor

from genie_dg._types import MAIN, DomainBatch, Network, Objective, StepContext
from genie_dg.check import number
from genie_dg.search_space import LogUniform, Setting

from .algorithm import Agreement, Algorithm, AlgorithmRow
from .alignment import kernel_distance, mean_over_pairs, moment_distance


def random_cuts(sizes: list[int], generator: torch.Generator) -> list[int]:
    """For each domain how many of its samples go to the first mixture: any number from 0 to ``size - 1``.

    >>> cuts = [random_cuts([2, 1], torch.Generator().manual_seed(k)) for k in range(20)]
    >>> {first for first, _ in cuts}, {second for _, second in cuts}
    ({0, 1}, {0})
    """
    return [int(torch.randint(size, (), generator=generator)) for size in sizes]


class Mixtures(Algorithm):
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

    def __init__(self, network: Network, domains: int, *, mmd_gamma: float = 1.0) -> None:
        super().__init__(network, domains)
        self.mmd_gamma = number("mmd_gamma", mmd_gamma, 0)

    @staticmethod
    @abstractmethod
    def distance(x: Tensor, y: Tensor) -> Tensor:
        """Features ``[n, d]`` and ``[m, d]`` of two mixtures to a scalar."""

    def objectives(self, batch: DomainBatch, context: StepContext) -> Iterator[Objective]:
        cuts = random_cuts(batch.sizes, context.generator())
        enough = 2 <= sum(cuts) <= sum(batch.sizes) - 2

        def loss() -> Tensor:
            features = [self.network.features(images) for images in batch.images]
            heads = zip(features, batch.labels, strict=True)
            loss = torch.stack([self.classification_loss(self.network.head(z), y) for z, y in heads]).mean()
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
    what `genie_dg.algorithms.alignment.CORAL` does.
    """

    distance = staticmethod(moment_distance)


_PAPER = "Chevalley et al., Invariant Causal Mechanisms through Distribution Matching, arXiv 2206.11646, 2022"
_SPACE = {"mmd_gamma": Setting(1.0, LogUniform(-1, 1), "DomainBed")}
_ONE_SOURCE = "With one source domain {} compares that domain with itself: both parts have one distribution."
MMD_ROW = AlgorithmRow(
    "CausIRL-MMD",
    CausIRLMMD,
    _PAPER,
    _SPACE,
    domainbed=Agreement(1e-10),
    one_source=_ONE_SOURCE.format("CausIRL-MMD"),
)
CORAL_ROW = AlgorithmRow(
    "CausIRL-CORAL",
    CausIRLCORAL,
    _PAPER,
    _SPACE,
    domainbed=Agreement(tolerance=1e-10),
    one_source=_ONE_SOURCE.format("CausIRL-CORAL"),
)
