"""One training step: every objective of the algorithm, each stepped by the optimizer of its role."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.optim import Optimizer

from genie_dg._types import DomainBatch, Objective, StepContext
from genie_dg.algorithms._base import Algorithm


def backward(loss: Tensor, optimizer: Optimizer, create_graph: bool) -> None:
    """Write the gradients of a loss to the parameters of an optimizer and, where it must be so, their graph.

    With a graph, ``torch.autograd.grad`` takes the place of ``loss.backward``, which would tie parameters and
    gradients into a cycle and warn of it.
    """
    if not create_graph:
        loss.backward()  # type: ignore[no-untyped-call]
        return
    parameters = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    gradients = torch.autograd.grad(loss, parameters, create_graph=True, allow_unused=True)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient


def take_step(
    algorithm: Algorithm, optimizers: Mapping[str, Optimizer], batch: DomainBatch, context: StepContext
) -> dict[str, float]:
    """Step every role that the algorithm asks for; returns the loss of each, before its step.

    The code of an algorithm after a ``yield`` runs after the step of that objective.
    """
    losses: dict[str, float] = {}
    for objective in algorithm.objectives(batch, context):
        optimizer = optimizers[objective.role]
        value = _step(objective, optimizer, context)
        losses.setdefault(objective.role, value)
    return losses


def _step(objective: Objective, optimizer: Optimizer, context: StepContext) -> float:
    def closure() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = objective.loss()
        backward(loss, optimizer, context.create_graph)
        return loss

    loss = optimizer.step(closure)
    if context.create_graph:
        optimizer.zero_grad(set_to_none=True)  # the graphs of this step end here
    return float(loss)  # type: ignore[arg-type]
