"""MMD: the features of all domains get the same distribution, as Gaussian kernels see it."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from genie_dg._types import MAIN, DomainBatch, Network, Objective, StepContext
from genie_dg.check import number
from genie_dg.search_space import LogUniform, Setting

from ._penalties import aligned_loss, kernel_distance
from .algorithm import Algorithm, AlgorithmRow


class MMD(Algorithm):
    r"""Mean loss of the domains plus the maximum mean discrepancy of their features.

    .. math::
        L = \frac1D \sum_d R_d + \gamma \frac{2}{D(D-1)} \sum_{a<b}
            \big[ \overline{K(a,a)} + \overline{K(b,b)} - 2\,\overline{K(a,b)} \big], \qquad
        K(u, v) = \sum_{k=-3}^{3} e^{-10^k \|u - v\|^2}

    R_d is the mean cross entropy of domain d; a bar is the mean over all pairs of samples (the biased estimate:
    never negative); ``mmd_gamma`` is gamma. Each domain is a forward pass of its own.

    Args:
        network: makes the predictions.
        domains: how many training domains every batch has.
        mmd_gamma: weight of the discrepancy.

    References:
        Li, Pan, Wang, Kot, Domain Generalization with Adversarial Feature Learning, CVPR 2018 (MMD-AAE).
        Gretton et al., A Kernel Two-Sample Test, JMLR 2012.

    Differs from the paper in that only its discrepancy is used, as in the public code (DomainBed): there is no
    autoencoder and no adversarial prior.
    """

    def __init__(self, network: Network, domains: int, *, mmd_gamma: float = 1.0) -> None:
        super().__init__(network, domains)
        self.mmd_gamma = number("mmd_gamma", mmd_gamma, 0)

    def objectives(self, batch: DomainBatch, context: StepContext) -> Iterator[Objective]:
        def loss() -> Tensor:
            return aligned_loss(self.network, batch, self.mmd_gamma, kernel_distance)

        yield Objective(MAIN, loss)


ROW = AlgorithmRow(
    "MMD",
    MMD,
    paper="Li et al., Domain Generalization with Adversarial Feature Learning, CVPR 2018",
    space={"mmd_gamma": Setting(1.0, LogUniform(-1, 1))},
    one_source="With one source domain MMD equals ERM: there is no second domain to compare features with.",
)
