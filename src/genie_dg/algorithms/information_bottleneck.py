"""IB-ERM and IB-IRM: features that vary no more within a domain than the labels need."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from genie_dg._types import DomainBatch, Network, Restart, StepContext
from genie_dg.check import number
from genie_dg.search_space import LogUniform, Setting

from .algorithm import AlgorithmRow, OneLoss, at_least_float32
from .risk_penalties import irm_penalty, two_stage_weight


def feature_variance(features: Tensor, sizes: list[int]) -> Tensor:
    r"""The variance of the features within a domain, averaged over features and domains.

    .. math:: \frac1D \sum_d \frac1F \sum_k \frac1{n_d - 1} \sum_{i \in d} (z_{ik} - \bar z_{dk})^2

    Computed in float32 or float64 also inside autocast.

    Args:
        features: :math:`z`, of shape ``[samples, F]``, domain after domain.
        sizes: :math:`n_d`, 2 or more each.

    >>> z = torch.tensor([[0.0, 1.0], [2.0, 1.0], [0.0, 0.0], [4.0, 2.0]])
    >>> feature_variance(z, [2, 2]).item()  # the mean of 2 and 0, and of 8 and 2
    3.0
    """
    parts = torch.split(at_least_float32(features), sizes)
    return torch.stack([z.var(0).mean() for z in parts]).mean()


@final
class IBERM(OneLoss):
    r"""Mean loss of the domains plus the variance of the features within them.

    .. math:: L = \frac1D \sum_d R_d + \lambda_t V

    R_d is the mean cross entropy of domain d and V the `feature_variance`, which bounds the entropy of the
    features. All domains go through the network together.

    Args:
        ib_lambda: :math:`\lambda_t` after the first steps.
        ib_penalty_anneal_iters: how many first steps have :math:`\lambda_t = 0`.

    Differs from the paper in that it lowers a weighted sum; there the entropy is lowered subject to a bound on
    the risk. As in DomainBed, the variance is that within each domain, and the optimizer starts afresh at step
    ``ib_penalty_anneal_iters``.
    """

    least_samples = 2

    def __init__(
        self, network: Network, domains: int, *, ib_lambda: float = 1e2, ib_penalty_anneal_iters: int = 500
    ) -> None:
        super().__init__(network, domains)
        self.ib_lambda = number("ib_lambda", ib_lambda, 0)
        self.ib_penalty_anneal_iters = number("ib_penalty_anneal_iters", ib_penalty_anneal_iters, 0)
        self.restarts = {self.ib_penalty_anneal_iters: Restart()}

    def loss(self, batch: DomainBatch, context: StepContext) -> Tensor:
        weight = self.ib_lambda if context.step >= self.ib_penalty_anneal_iters else 0.0
        features = self.network.features(batch.all_images)
        losses = self.losses_of_domains(self.network.head(features).split(batch.sizes), batch.labels)
        return losses.mean() + weight * feature_variance(features, batch.sizes)


@final
class IBIRM(OneLoss):
    r"""Mean loss of the domains, the penalty of IRM, and the variance of the features within the domains.

    .. math:: L = \frac1D \sum_d \big[ R_d + \mu_t P_d \big] + \lambda_t V

    R_d is the mean cross entropy of domain d, P_d its `irm_penalty` (which may be negative) and V the
    `feature_variance`. All domains go through the network together.

    Args:
        irm_lambda: :math:`\mu_t` after its first steps.
        irm_penalty_anneal_iters: how many first steps have :math:`\mu_t = 1`, not 0.
        ib_lambda: :math:`\lambda_t` after its first steps.
        ib_penalty_anneal_iters: how many first steps have :math:`\lambda_t = 0`.

    Differs from the paper in that it lowers a weighted sum; there the entropy is lowered subject to the
    constraints of IRM. As in DomainBed, the variance is that within each domain, and the optimizer starts
    afresh when either of the two weights changes.
    """

    least_samples = 2

    def __init__(
        self,
        network: Network,
        domains: int,
        *,
        irm_lambda: float = 1e2,
        irm_penalty_anneal_iters: int = 500,
        ib_lambda: float = 1e2,
        ib_penalty_anneal_iters: int = 500,
    ) -> None:
        super().__init__(network, domains)
        self.irm_lambda = number("irm_lambda", irm_lambda, 0)
        self.irm_penalty_anneal_iters = number("irm_penalty_anneal_iters", irm_penalty_anneal_iters, 0)
        self.ib_lambda = number("ib_lambda", ib_lambda, 0)
        self.ib_penalty_anneal_iters = number("ib_penalty_anneal_iters", ib_penalty_anneal_iters, 0)
        self.restarts = {self.irm_penalty_anneal_iters: Restart(), self.ib_penalty_anneal_iters: Restart()}

    def loss(self, batch: DomainBatch, context: StepContext) -> Tensor:
        irm_weight = two_stage_weight(context.step, self.irm_penalty_anneal_iters, self.irm_lambda)
        ib_weight = self.ib_lambda if context.step >= self.ib_penalty_anneal_iters else 0.0
        features = self.network.features(batch.all_images)
        logits = self.network.head(features).split(batch.sizes)
        loss = self.losses_of_domains(logits, batch.labels).mean()
        variance = feature_variance(features, batch.sizes)
        return loss + irm_weight * irm_penalty(logits, batch.labels) + ib_weight * variance


_PAPER = (
    "Ahuja et al., Invariance Principle Meets Information Bottleneck for Out-of-Distribution Generalization, "
    "NeurIPS 2021"
)
_IB_SPACE = {
    "ib_lambda": Setting(1e2, LogUniform(-1, 5), "DomainBed"),
    "ib_penalty_anneal_iters": Setting(500, LogUniform(0, 4, whole=True), "DomainBed"),
}
IB_ERM_ROW = AlgorithmRow(
    "IB-ERM",
    IBERM,
    _PAPER,
    _IB_SPACE,
    domainbed=1e-10,
    one_source="With one source domain IB-ERM's penalty is that domain's own; no domains are compared.",
)
IB_IRM_ROW = AlgorithmRow(
    "IB-IRM",
    IBIRM,
    _PAPER,
    {
        "irm_lambda": Setting(1e2, LogUniform(-1, 5), "DomainBed"),
        "irm_penalty_anneal_iters": Setting(500, LogUniform(0, 4, whole=True), "DomainBed"),
        **_IB_SPACE,
    },
    plain_loss="its penalty is the derivative of the plain cross entropy, written out",
    domainbed=1e-10,
    one_source="With one source domain IB-IRM's penalties are that domain's own; no domains are compared.",
)
