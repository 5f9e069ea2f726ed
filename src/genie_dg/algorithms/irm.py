"""Invariant risk minimisation: one classifier that is optimal in every domain at once."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from genie_dg._types import MAIN, DomainBatch, Network, Objective, StepContext
from genie_dg.check import number
from genie_dg.search_space import LogUniform, Setting

from ._penalties import by_domain, check_pairs, losses_of_domains, two_stage_weight
from .algorithm import Algorithm, AlgorithmRow


def scale_gradients(logits: Tensor, labels: Tensor) -> Tensor:
    r"""For each sample the derivative of its cross entropy in a factor w on its logits, at w = 1.

    .. math:: \partial_w \ell(w z, y)\big|_{w=1} = \sum_k \mathrm{softmax}(z)_k\, z_k - z_y

    >>> z = torch.tensor([[1.0, -1.0], [1.0, -1.0]])
    >>> [round(g, 4) for g in scale_gradients(z, torch.tensor([0, 1])).tolist()]  # tanh(1) - 1, tanh(1) + 1
    [-0.2384, 1.7616]
    """
    mean = (torch.softmax(logits, 1) * logits).sum(1)
    return mean - logits.gather(1, labels[:, None])[:, 0]


def irm_penalty(logits: Tensor, labels: Tensor) -> Tensor:
    """The unbiased estimate of the squared derivative: its mean on the even times its mean on the odd samples.

    >>> z = torch.tensor([[1.0, -1.0]] * 3)
    >>> round(irm_penalty(z, torch.tensor([0, 1, 0])).item(), 4)  # (tanh(1) - 1) * (tanh(1) + 1)
    -0.42
    """
    gradients = scale_gradients(logits, labels)
    return gradients[0::2].mean() * gradients[1::2].mean()


class IRM(Algorithm):
    r"""Mean loss of the domains and a penalty where a scaled classifier would do better in one of them.

    .. math::
        L = \frac1D \sum_d \Big[ R_d(\theta) + \lambda_t\,
            \partial_w R_d^{\text{even}}(w \cdot f)\; \partial_w R_d^{\text{odd}}(w \cdot f)\big|_{w=1} \Big]

    R_d is the mean cross entropy of domain d, f the logits; *even* and *odd* are the samples at even and odd
    places of the domain's batch, two independent halves, so that the product is an unbiased estimate of the
    squared derivative (and may be negative). :math:`\lambda_t` is 1, not 0, in the first
    ``irm_penalty_anneal_iters`` steps and ``irm_lambda`` from then on. All domains go through the network
    together.

    Args:
        network: makes the predictions.
        domains: how many training domains every batch has.
        irm_lambda: weight of the penalty after the first steps.
        irm_penalty_anneal_iters: how many first steps have weight 1.

    References:
        Arjovsky, Bottou, Gulrajani, Lopez-Paz, Invariant Risk Minimization, 2019 (IRMv1, appendix D).

    Differs from the paper in that domains are averaged, not summed, and that the loss is not divided by the
    weight where the weight is large.

    Differs from the public code (DomainBed) in that the optimizer is not reset at step
    ``irm_penalty_anneal_iters``: an algorithm owns no optimizer. The derivative in w is written out, not
    computed by a second backward pass.
    """

    def __init__(
        self,
        network: Network,
        domains: int,
        *,
        irm_lambda: float = 1e2,
        irm_penalty_anneal_iters: int = 500,
    ) -> None:
        super().__init__(network, domains)
        self.irm_lambda = number("irm_lambda", irm_lambda, 0)
        self.irm_penalty_anneal_iters = number("irm_penalty_anneal_iters", irm_penalty_anneal_iters, 0)

    def objectives(self, batch: DomainBatch, context: StepContext) -> Iterator[Objective]:
        check_pairs("IRM", batch)
        images = batch.all_images
        weight = two_stage_weight(context.step, self.irm_penalty_anneal_iters, self.irm_lambda)

        def loss() -> Tensor:
            logits = self.network(images)
            penalties = torch.stack([irm_penalty(z, y) for z, y in by_domain(logits, batch)])
            return losses_of_domains(logits, batch).mean() + weight * penalties.mean()

        yield Objective(MAIN, loss)


ROW = AlgorithmRow(
    "IRM",
    IRM,
    paper="Arjovsky et al., Invariant Risk Minimization, arXiv 1907.02893, 2019",
    space={
        "irm_lambda": Setting(1e2, LogUniform(-1, 5)),
        "irm_penalty_anneal_iters": Setting(500, LogUniform(0, 4, whole=True)),
    },
    one_source="With one source domain IRM's penalty is that domain's own; "
    "nothing is compared between domains.",
)
