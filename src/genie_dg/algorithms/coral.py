"""CORAL: the features of all domains get the same mean and the same covariance."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from genie_dg._types import MAIN, DomainBatch, Network, Objective, StepContext
from genie_dg.check import number
from genie_dg.search_space import LogUniform, Setting

from ._penalties import aligned_loss, check_pairs, moment_distance
from .algorithm import Algorithm, AlgorithmRow


class CORAL(Algorithm):
    r"""Mean loss of the domains plus the differences of their features' means and covariances.

    .. math::
        L = \frac1D \sum_d R_d + \gamma \frac{2}{D(D-1)} \sum_{a<b}
            \Big[ \frac1d \|\mu_a - \mu_b\|^2 + \frac1{d^2} \|C_a - C_b\|_F^2 \Big]

    R_d is the mean cross entropy of domain d; :math:`\mu` and C (with n - 1) are the mean and the covariance of
    the d features of a domain's batch; ``mmd_gamma`` is gamma. Each domain is a forward pass of its own.

    Args:
        network: makes the predictions.
        domains: how many training domains every batch has.
        mmd_gamma: weight of the distances; named as in the public code, which shares it with MMD.

    References:
        Sun, Saenko, Deep CORAL: Correlation Alignment for Deep Domain Adaptation, ECCV workshops 2016.

    Differs from the paper in three things, as the public code (DomainBed) does: the means are compared too; the
    squared Frobenius norm is divided by d^2, not by 4 d^2; and the distance is the mean over all pairs of
    training domains, not that of one source and one target.
    """

    def __init__(self, network: Network, domains: int, *, mmd_gamma: float = 1.0) -> None:
        super().__init__(network, domains)
        self.mmd_gamma = number("mmd_gamma", mmd_gamma, 0)

    def objectives(self, batch: DomainBatch, context: StepContext) -> Iterator[Objective]:
        check_pairs("CORAL", batch)

        def loss() -> Tensor:
            return aligned_loss(self.network, batch, self.mmd_gamma, moment_distance)

        yield Objective(MAIN, loss)


ROW = AlgorithmRow(
    "CORAL",
    CORAL,
    paper="Sun, Saenko, Deep CORAL: Correlation Alignment for Deep Domain Adaptation, ECCV Workshops 2016",
    space={"mmd_gamma": Setting(1.0, LogUniform(-1, 1))},
    one_source="With one source domain CORAL equals ERM: there is no second domain to compare features with.",
)
