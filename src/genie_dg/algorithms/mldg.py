"""MLDG: a step on some domains should also help on the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import final

import torch
from torch import Tensor
from torch.func import functional_call

from genie_dg._types import MAIN, DomainBatch, Network, Objective, StepContext
from genie_dg.check import boolean, number, whole_number
from genie_dg.search_space import Choice, LogUniform, Setting

from .algorithm import Algorithm, AlgorithmRow


@final
class MLDG(Algorithm):
    r"""Meta-learning for domain generalization, the paper's algorithm 1.

    Each step splits the S domains at random into V held out (meta-test) and S - V others (meta-train). With
    :math:`L_k(\Theta)` the mean loss on domain k,

    .. math::
        F(\Theta) = \frac{1}{S-V} \sum_{k \in \text{train}} L_k(\Theta), \qquad
        G(\Theta) = \frac1V \sum_{k \in \text{test}} L_k(\Theta), \qquad
        \text{loss} = F(\Theta) + \beta\,G\bigl(\Theta - \alpha \nabla F(\Theta)\bigr) .

    The loss is differentiated through the inner step, so the gradient has second derivatives of F.

    Args:
        domains: S. With one domain there is nothing to hold out and the loss is F: ERM.
        mldg_beta: :math:`\beta`.
        n_meta_test: V; at most S - 1 are held out.
        mldg_inner_lr: :math:`\alpha`; the learning rate of the paper's experiment on PACS.
        mldg_first_order: take :math:`\nabla F` in the inner step as a constant; cheaper, and not the paper's.

    Differs from DomainBed's code in: the inner step is one of plain gradient descent with its own rate (there:
    a fresh Adam with the run's rate and weight decay, whose first step has the size of the rate in every
    weight); second derivatives are kept (there the gradients before and after the inner step are added); one
    inner step goes along F (there each meta-train domain has its own, and is paired with one meta-test domain).
    """

    def __init__(
        self,
        network: Network,
        domains: int,
        *,
        mldg_beta: float = 1.0,
        n_meta_test: int = 2,
        mldg_inner_lr: float = 5e-4,
        mldg_first_order: bool = False,
    ) -> None:
        super().__init__(network, domains)
        self.beta = number("mldg_beta", mldg_beta, 0)
        self.inner_lr = number("mldg_inner_lr", mldg_inner_lr, 0)
        self.first_order = boolean("mldg_first_order", mldg_first_order)
        self.held_out = min(whole_number("n_meta_test", n_meta_test), domains - 1)

    def objectives(self, batch: DomainBatch, context: StepContext) -> Iterator[Objective]:
        order: list[int] = torch.randperm(self.domains, generator=context.generator()).tolist()
        meta_test, meta_train = order[: self.held_out], order[self.held_out :]

        def loss() -> Tensor:
            weights = {name: p for name, p in self.network.named_parameters() if p.requires_grad}
            train_loss = self._loss(batch, meta_train, weights)
            if not meta_test:
                return train_loss
            return train_loss + self.beta * self._loss(batch, meta_test, self._stepped(train_loss, weights))

        yield Objective(MAIN, loss)

    def _loss(self, batch: DomainBatch, domains: Sequence[int], weights: Mapping[str, Tensor]) -> Tensor:
        """The mean over some domains of their mean losses; batch-norm statistics stay the network's own."""
        losses = []
        for k in domains:
            logits = functional_call(self.network, dict(weights), (batch.images[k],))
            losses.append(self.classification_loss(logits, batch.labels[k]))
        return torch.stack(losses).mean()

    def _stepped(self, loss: Tensor, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The weights after a step against the gradient of ``loss``."""
        slopes = torch.autograd.grad(
            loss, [*weights.values()], retain_graph=True, create_graph=not self.first_order, allow_unused=True
        )
        return {
            name: weight if slope is None else weight - self.inner_lr * slope
            for (name, weight), slope in zip(weights.items(), slopes, strict=True)
        }


ROW = AlgorithmRow(
    "MLDG",
    MLDG,
    paper="Li et al., Learning to Generalize: Meta-Learning for Domain Generalization, AAAI 2018",
    space={
        "mldg_beta": Setting(1.0, LogUniform(-1, 1), "DomainBed"),
        "n_meta_test": Setting(2, Choice((1, 2)), "DomainBed"),
        "mldg_inner_lr": Setting(5e-4, None, "the paper's experiment on PACS"),
        "mldg_first_order": Setting(False, None, "the paper"),
    },
    one_source="There is no domain to hold out: MLDG with one source domain equals ERM.",
    inner_gradients=True,
    differs="The gradient goes through the inner step (second order), as in the paper; DomainBed adds the "
    "gradients before and after the inner step (first order). The inner step is plain gradient descent with a "
    "rate of its own, as in the paper; DomainBed takes it with a fresh Adam at the run's rate. One inner step "
    "on all meta-train domains together, then all meta-test domains, as in the paper; DomainBed takes one "
    "inner step for each meta-train domain and pairs it with one meta-test domain.",
)
