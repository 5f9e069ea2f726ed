"""Transfer: features on which no head near the network's own serves one domain much worse than another."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import final

import torch
from torch import Tensor, nn

from genie_dg._types import MAIN, DomainBatch, Network, Objective, Role, StepContext
from genie_dg.check import number, whole_number
from genie_dg.search_space import Choice, LogUniform, Setting, Uniform

from .algorithm import Algorithm, AlgorithmRow

_ADVERSARY = "adversary"
"""The role of the second head."""


def gap(losses: Tensor) -> Tensor:
    """The largest minus the smallest; where several are equal, the first of them.

    >>> gap(torch.tensor([1.0, 4.0, 2.0])).item()
    3.0
    """
    return losses[losses.argmax()] - losses[losses.argmin()]


@torch.no_grad()
def project(module: nn.Module, centre: nn.Module, radius: float) -> None:
    r"""Move the weights of a module to the nearest point of a ball around those of another.

    .. math:: w \leftarrow c + \min\Big(1, \frac{r}{\lVert w - c \rVert}\Big) (w - c)

    The length is that of all weights together.

    >>> module, centre = nn.Linear(1, 1), nn.Linear(1, 1)
    >>> for p, q, far in zip(module.parameters(), centre.parameters(), (3.0, 4.0)):
    ...     _ = p.data.fill_(1 + far), q.data.fill_(1)
    >>> project(module, centre, 2.5)  # half of the distance 5
    >>> module.weight.item(), module.bias.item()
    (2.5, 3.0)
    """
    pairs = list(zip(module.parameters(), centre.parameters(), strict=True))
    distance = torch.stack([(p - c).square().sum() for p, c in pairs]).sum().sqrt()
    if distance > radius:
        for p, c in pairs:
            p.copy_(c + radius / distance * (p - c))


@final
class Transfer(Algorithm):
    r"""The network classifies, and its features close the gap between domains that a second head opens.

    With features z, the network's head h, a second head h' and the mean cross entropy :math:`R_d` of domain d,
    a step lowers, in this order,

    .. math::
        \frac1N \sum_i \ell(h(z_i), y_i) \text{ in the network}; \qquad
        \lambda \big[ \max_d R_d(h') - \min_d R_d(h') \big] \text{ in the featurizer};

    then h' becomes a copy of h and moves up the same gap ``d_steps_per_g`` times, each time by plain gradient
    ascent with the rate ``lr_d`` and the `project`\ ion to the ball of radius ``delta`` around h. The first two
    are stepped as ``"main"``, the network's head has no gradient in the second. In the first step of a run h'
    is a copy of h as it was before. The first objective takes all domains together; in the gap each domain is a
    forward pass of its own.

    Args:
        t_lambda: :math:`\lambda`.
        delta: how far h' may be from h, over all its weights.
        d_steps_per_g: steps of h' for each step of the network.
        lr_d: learning rate of h'.

    The order of the steps is that of the authors' code, which is also DomainBed's. Differs from DomainBed's in
    that the network is always trained, by the optimizer of the run: there ``gda=True``, which is what a random
    search always draws, gives the weights of h' to the network's optimizer, so that the network never moves.
    Gradient descent-ascent is the optimizer ``sgd`` here.
    """

    def __init__(
        self,
        network: Network,
        domains: int,
        *,
        t_lambda: float = 1.0,
        delta: float = 2.0,
        d_steps_per_g: int = 10,
        lr_d: float = 1e-3,
    ) -> None:
        super().__init__(network, domains)
        self.t_lambda = number("t_lambda", t_lambda, 0)
        self.delta = number("delta", delta, 0)
        self.d_steps = whole_number("d_steps_per_g", d_steps_per_g)
        self.lr_d = number("lr_d", lr_d, 0)
        self.adversary = copy.deepcopy(network.head)

    def roles(self) -> dict[str, Role]:
        """The network as ``"main"``; the second head under plain gradient steps, as published."""
        plain = {"lr": self.lr_d, "momentum": 0.0}
        return {**super().roles(), _ADVERSARY: Role.of(self.adversary, optimizer="sgd", settings=plain)}

    def objectives(self, batch: DomainBatch, context: StepContext) -> Iterator[Objective]:
        images, labels = batch.all_images, batch.all_labels

        def adversary_loss() -> Tensor:
            with torch.no_grad():
                features = self._features(batch)
            return -self.t_lambda * self._gap(features, batch)

        yield Objective(MAIN, lambda: self.classification_loss(self.network(images), labels))
        yield Objective(MAIN, lambda: self.t_lambda * self._gap(self._features(batch), batch))
        self.adversary.load_state_dict(self.network.head.state_dict())
        for _ in range(self.d_steps):
            yield Objective(_ADVERSARY, adversary_loss)
            project(self.adversary, self.network.head, self.delta)

    def _features(self, batch: DomainBatch) -> list[Tensor]:
        return [self.network.features(images) for images in batch.images]

    def _gap(self, features: list[Tensor], batch: DomainBatch) -> Tensor:
        """The gap of the second head."""
        return gap(self.losses_of_domains(map(self.adversary, features), batch.labels))


ROW = AlgorithmRow(
    "Transfer",
    Transfer,
    paper="Zhang et al., Quantifying and Improving Transferability in Domain Generalization, NeurIPS 2021",
    space={
        "t_lambda": Setting(1.0, LogUniform(-2, 1), "DomainBed"),
        "delta": Setting(2.0, Uniform(0.1, 3.0), "DomainBed"),
        "d_steps_per_g": Setting(10, Choice((1, 2, 5)), "DomainBed"),
        "lr_d": Setting(1e-3, LogUniform(-4.5, -2.5), "DomainBed"),
    },
    domainbed=1e-10,
    differs="The network is always trained, as in the paper; with gda=True, which every random draw of "
    "DomainBed has, its optimizer gets the weights of the second head instead and the network never moves. "
    "There is no setting gda here, and none for weight_decay_d and beta1, which DomainBed draws and never "
    "uses.",
    one_source="With one source domain there is no gap: Transfer's first objective is ERM's, and the others "
    "have no gradient.",
)
