"""Group distributionally robust optimisation: domains with a larger loss gain weight."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from genie_dg._types import MAIN, DomainBatch, Network, Objective, StepContext
from genie_dg.check import number
from genie_dg.search_space import LogUniform, Setting

from .algorithm import Algorithm, AlgorithmRow


def raised(q: Tensor, losses: Tensor, eta: float) -> Tensor:
    """The weights after one ascent step: ``q_d exp(eta loss_d)``, scaled to sum 1. They carry no gradient.

    >>> [round(v, 4) for v in raised(torch.tensor([0.5, 0.5]), torch.tensor([0.0, 3.0]).log1p(), 1.0).tolist()]
    [0.2, 0.8]
    """
    return torch.softmax(q.log() + eta * losses.detach(), 0)


class GroupDRO(Algorithm):
    r"""The domains' losses under weights that follow the worst domain.

    .. math::
        q_d^{t} \propto q_d^{t-1} e^{\eta R_d(\theta_t)}, \qquad L = \sum_d q_d^{t} R_d(\theta)

    R_d is the mean cross entropy of domain d, each domain a forward pass of its own; ``groupdro_eta`` is eta;
    q is 1/D before the first step. The new weights are those of the first evaluation in a step: they stay as
    they are when an optimizer evaluates the loss again at other weights of the network, and are stored once,
    after the step.

    Args:
        groupdro_eta: step size of the weights; 0 keeps them equal.

    Differs from the paper in that every step sees all domains and changes all weights; the paper's algorithm
    draws one domain a step.
    """

    q: Tensor

    def __init__(self, network: Network, domains: int, *, groupdro_eta: float = 1e-2) -> None:
        super().__init__(network, domains)
        self.groupdro_eta = number("groupdro_eta", groupdro_eta, 0)
        like = next(network.parameters())
        self.register_buffer("q", torch.full((domains,), 1 / domains, dtype=like.dtype, device=like.device))

    def objectives(self, batch: DomainBatch, context: StepContext) -> Iterator[Objective]:
        new: list[Tensor] = []

        def loss() -> Tensor:
            losses = self.losses_of_domains(map(self.network, batch.images), batch.labels)
            if not new:
                new.append(raised(self.q, losses, self.groupdro_eta))
            return (new[0] * losses).sum()

        yield Objective(MAIN, loss)
        if new:
            self.q.copy_(new[0])


ROW = AlgorithmRow(
    "GroupDRO",
    GroupDRO,
    paper="Sagawa et al., Distributionally Robust Neural Networks for Group Shifts, ICLR 2020",
    space={"groupdro_eta": Setting(1e-2, LogUniform(-3, -1))},
    one_source="With one source domain GroupDRO equals ERM: its only weight is 1.",
    domainbed=1e-10,
)
