"""IRM and VREx: the mean of the domains' losses, and a penalty that compares the domains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from genie_dg._types import DomainBatch, Network, Restart, StepContext
from genie_dg.check import number
from genie_dg.search_space import LogUniform, Setting

from .algorithm import AlgorithmRow, OneLoss


def two_stage_weight(step: int, first_steps: float, final: float) -> float:
    """1 in steps 0 to ``first_steps - 1``, then ``final``.

    >>> [two_stage_weight(step, 2, 100.0) for step in range(4)]
    [1.0, 1.0, 100.0, 100.0]
    """
    return final if step >= first_steps else 1.0


def scale_gradients(logits: Tensor, labels: Tensor) -> Tensor:
    r"""For each sample the derivative of its cross entropy in a factor w on its logits, at w = 1.

    .. math:: \partial_w \ell(w z, y)\big|_{w=1} = \sum_k \mathrm{softmax}(z)_k\, z_k - z_y

    >>> z = torch.tensor([[1.0, -1.0], [1.0, -1.0]])
    >>> [round(g, 4) for g in scale_gradients(z, torch.tensor([0, 1])).tolist()]  # tanh(1) - 1, tanh(1) + 1
    [-0.2384, 1.7616]
    """
    mean = (torch.softmax(logits, 1) * logits).sum(1)
    return mean - logits.gather(1, labels[:, None])[:, 0]


def irm_penalty(logits: Sequence[Tensor], labels: Sequence[Tensor]) -> Tensor:
    """The mean over domains of the unbiased estimate of the squared derivative.

    The estimate is the mean derivative of the even samples times that of the odd samples.

    >>> z = torch.tensor([[1.0, -1.0]] * 3)
    >>> round(irm_penalty([z], [torch.tensor([0, 1, 0])]).item(), 4)  # (tanh(1) - 1) * (tanh(1) + 1)
    -0.42
    """
    slopes = [scale_gradients(z, y) for z, y in zip(logits, labels, strict=True)]
    return torch.stack([slope[0::2].mean() * slope[1::2].mean() for slope in slopes]).mean()


@final
class IRM(OneLoss):
    r"""Mean loss of the domains and a penalty where a scaled classifier would do better in one of them (IRMv1).

    .. math::
        L = \frac1D \sum_d \Big[ R_d(\theta) + \lambda_t\,
            \partial_w R_d^{\text{even}}(w \cdot f)\; \partial_w R_d^{\text{odd}}(w \cdot f)\big|_{w=1} \Big]

    R_d is the mean cross entropy of domain d, f the logits; *even* and *odd* are the samples at even and odd
    places of the domain's batch, two independent halves, so that the product is an unbiased estimate of the
    squared derivative (and may be negative). All domains go through the network together.

    Args:
        irm_lambda: :math:`\lambda_t` after the first steps.
        irm_penalty_anneal_iters: how many first steps have :math:`\lambda_t = 1`, not 0.

    Differs from the paper (appendix D) in that domains are averaged, not summed, and that the loss is not
    divided by the weight where the weight is large; instead the optimizer starts afresh at step
    ``irm_penalty_anneal_iters``. Both as in DomainBed.
    """

    least_samples = 2

    def __init__(
        self, network: Network, domains: int, *, irm_lambda: float = 1e2, irm_penalty_anneal_iters: int = 500
    ) -> None:
        super().__init__(network, domains)
        self.irm_lambda = number("irm_lambda", irm_lambda, 0)
        self.irm_penalty_anneal_iters = number("irm_penalty_anneal_iters", irm_penalty_anneal_iters, 0)
        self.restarts = {self.irm_penalty_anneal_iters: Restart()}

    def loss(self, batch: DomainBatch, context: StepContext) -> Tensor:
        weight = two_stage_weight(context.step, self.irm_penalty_anneal_iters, self.irm_lambda)
        logits = self.network(batch.all_images)
        parts = logits.split(batch.sizes)
        return self.losses_of_domains(parts, batch.labels).mean() + weight * irm_penalty(parts, batch.labels)


@final
class VREx(OneLoss):
    r"""Mean loss of the domains plus the variance of these losses.

    .. math::
        L = \bar R + \lambda_t \frac1D \sum_d (R_d - \bar R)^2, \qquad \bar R = \frac1D \sum_d R_d

    R_d is the mean cross entropy of domain d. All domains go through the network together.

    Args:
        vrex_lambda: :math:`\lambda_t` after the first steps (the paper's beta).
        vrex_penalty_anneal_iters: how many first steps have :math:`\lambda_t = 1`, not 0.

    Differs from the paper in that the losses of the domains are averaged, not summed, and in that the optimizer
    starts afresh at step ``vrex_penalty_anneal_iters``. Both as in DomainBed.
    """

    def __init__(
        self, network: Network, domains: int, *, vrex_lambda: float = 1e1, vrex_penalty_anneal_iters: int = 500
    ) -> None:
        super().__init__(network, domains)
        self.vrex_lambda = number("vrex_lambda", vrex_lambda, 0)
        self.vrex_penalty_anneal_iters = number("vrex_penalty_anneal_iters", vrex_penalty_anneal_iters, 0)
        self.restarts = {self.vrex_penalty_anneal_iters: Restart()}

    def loss(self, batch: DomainBatch, context: StepContext) -> Tensor:
        weight = two_stage_weight(context.step, self.vrex_penalty_anneal_iters, self.vrex_lambda)
        losses = self.losses_of_domains(self.network(batch.all_images).split(batch.sizes), batch.labels)
        return losses.mean() + weight * (losses - losses.mean()).square().mean()


IRM_ROW = AlgorithmRow(
    "IRM",
    IRM,
    paper="Arjovsky et al., Invariant Risk Minimization, arXiv 1907.02893, 2019",
    space={
        "irm_lambda": Setting(1e2, LogUniform(-1, 5)),
        "irm_penalty_anneal_iters": Setting(500, LogUniform(0, 4, whole=True)),
    },
    one_source="With one source domain IRM's penalty is that domain's own; no domains are compared.",
    plain_loss="its penalty is the derivative of the plain cross entropy, written out",
    domainbed=1e-10,
)
VREX_ROW = AlgorithmRow(
    "VREx",
    VREx,
    paper="Krueger et al., Out-of-Distribution Generalization via Risk Extrapolation (REx), ICML 2021",
    space={
        "vrex_lambda": Setting(1e1, LogUniform(-1, 5)),
        "vrex_penalty_anneal_iters": Setting(500, LogUniform(0, 4, whole=True)),
    },
    one_source="With one source domain VREx equals ERM: the variance of a single loss is 0.",
    domainbed=1e-10,
)
