"""Fish: one inner step on each domain in turn, which favours directions in which their gradients agree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

import torch
from torch import Tensor
from torch.func import functional_call

from genie_dg._types import MAIN, DomainBatch, Network, Objective, StepContext
from genie_dg.check import number
from genie_dg.search_space import Choice, Setting

from .algorithm import Algorithm, AlgorithmRow
from .gradients import gradients_of, trainable_parameters, with_gradient


@final
class Fish(Algorithm):
    r"""Gradient matching by an inner loop over the domains, in an order drawn anew at each step.

    From :math:`\tilde\theta_0 = \theta` the inner loop takes one step of plain gradient descent on each domain,

    .. math::
        \tilde\theta_{i+1} = \tilde\theta_i - \alpha\, \nabla L_{d_i}(\tilde\theta_i) ,
        \qquad \theta \leftarrow \theta + \epsilon\,(\tilde\theta_D - \theta) .

    The second rule is the paper's. Here the optimizer of the run makes the outer step, from the gradient

    .. math::
        \hat g = \epsilon\, \frac{\theta - \tilde\theta_D}{\alpha}
               = \epsilon \sum_i \nabla L_{d_i}(\tilde\theta_i) ,

    so plain SGD with the learning rate :math:`\alpha` makes exactly the paper's step. The sum is what is
    computed: the difference of two nearly equal weights would lose the digits of a small :math:`\alpha`.
    An optimizer that ignores the scale of gradients (Adam) ignores ``meta_lr``.

    The value of the loss is the mean of the :math:`L_{d_i}(\tilde\theta_i)` along the inner steps. No second
    derivatives are computed, unless the optimizer asks for them; then the whole inner path is differentiated.

    Args:
        meta_lr: :math:`\epsilon`.
        fish_inner_lr: :math:`\alpha`. It decides how strongly gradients are matched: at 0 Fish is ERM with
            gradients D times ``meta_lr`` as large. DomainBed's code takes the run's own rate (5e-5) with Adam,
            whose steps have that size in every weight; plain gradient descent needs a larger one, and 1e-2 is
            a choice of ours. It is not searched.

    Differs from the public code (DomainBed) in: the inner steps are plain gradient descent as in the paper, not
    Adam; the outer step is the optimizer's; batch-norm statistics are not interpolated.
    """

    def __init__(
        self, network: Network, domains: int, *, meta_lr: float = 0.5, fish_inner_lr: float = 1e-2
    ) -> None:
        super().__init__(network, domains)
        self.meta_lr = number("meta_lr", meta_lr, 0)
        self.fish_inner_lr = number("fish_inner_lr", fish_inner_lr, 0)

    def objectives(self, batch: DomainBatch, context: StepContext) -> Iterator[Objective]:
        order: list[int] = torch.randperm(len(batch), generator=context.generator()).tolist()
        parameters = trainable_parameters(self.network)

        def loss() -> Tensor:
            value, total = self._inner_loop(batch, order, context.create_graph)
            return with_gradient(value, parameters, [self.meta_lr * g for g in total])

        yield Objective(MAIN, loss)

    def _inner_loop(
        self, batch: DomainBatch, order: list[int], create_graph: bool
    ) -> tuple[Tensor, list[Tensor]]:
        """The mean of the domains' losses along the inner steps, and the sum of their gradients."""
        names = [name for name, p in self.network.named_parameters() if p.requires_grad]
        weights: list[Tensor] = list(trainable_parameters(self.network))
        total, losses = [torch.zeros_like(w) for w in weights], []
        for d in order:
            if not create_graph:
                weights = [w.detach().requires_grad_() for w in weights]
            state = dict(zip(names, weights, strict=True))
            logits = functional_call(self.network, state, (batch.images[d],))
            loss = self.classification_loss(logits, batch.labels[d])
            gradients = gradients_of(loss, weights, create_graph)
            weights = [w - self.fish_inner_lr * g for w, g in zip(weights, gradients, strict=True)]
            total = [t + g for t, g in zip(total, gradients, strict=True)]
            losses.append(loss.detach())
        return torch.stack(losses).mean(), total


ROW = AlgorithmRow(
    "Fish",
    Fish,
    paper="Shi et al., Gradient Matching for Domain Generalization, ICLR 2022",
    space={
        "meta_lr": Setting(0.5, Choice((0.05, 0.1, 0.5)), "DomainBed"),
        "fish_inner_lr": Setting(1e-2, None, "a choice for plain gradient descent"),
    },
    one_source="With one source domain the inner loop is one step: Fish is ERM with gradients times meta_lr.",
    inner_gradients=True,
    differs="Inner steps are plain gradient descent, as in the paper's algorithm; DomainBed takes them with an "
    "Adam whose state goes on from step to step. The order of the domains is drawn anew in each step, as in "
    "the paper; DomainBed always takes them in the order of the data set. The outer step is taken by the run's "
    "optimizer; DomainBed and the paper interpolate weights, which plain SGD at the inner rate does here.",
)
