"""Gradients of single domains, and losses whose gradient an algorithm prescribes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from genie_dg._types import DomainBatch

from .algorithm import Algorithm


class _PrescribedGradient(torch.autograd.Function):
    """Value of a loss forward, prescribed gradients backward."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, count: int, *tensors: Tensor) -> Tensor:
        ctx.save_for_backward(*tensors[count:])
        return value.detach().clone()

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> tuple[Tensor | None, ...]:
        prescribed = [outputs[0] * gradient for gradient in ctx.saved_tensors]
        return (None, None, *prescribed, *([None] * len(prescribed)))


def with_gradient(value: Tensor, parameters: Sequence[Tensor], gradients: Sequence[Tensor]) -> Tensor:
    """A scalar that equals ``value`` and whose gradient in ``parameters`` is ``gradients``.

    When ``gradients`` carry their graph (made with ``create_graph=True``), so does what ``backward`` writes: an
    optimizer that differentiates the gradient sees the derivative of the prescribed update.

    >>> p = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> loss = with_gradient(torch.tensor(7.0), [p], [torch.tensor([3.0, -1.0])])
    >>> loss.backward()
    >>> loss.item(), p.grad.tolist()
    (7.0, [3.0, -1.0])
    """
    result: Tensor = _PrescribedGradient.apply(value, len(parameters), *parameters, *gradients)
    return result


def trainable_parameters(network: nn.Module) -> tuple[nn.Parameter, ...]:
    """The parameters that take part in training, in the network's order."""
    return tuple(p for p in network.parameters() if p.requires_grad)


def gradients_of(loss: Tensor, parameters: Sequence[Tensor], create_graph: bool) -> tuple[Tensor, ...]:
    """The gradient of a loss in each parameter; zeros where the loss does not depend on it.

    >>> used, unused = torch.ones(2, requires_grad=True), torch.ones(1, requires_grad=True)
    >>> [g.tolist() for g in gradients_of((used * torch.tensor([1.0, 2.0])).sum(), [used, unused], False)]
    [[1.0, 2.0], [0.0]]
    """
    gradients = torch.autograd.grad(loss, parameters, create_graph=create_graph, allow_unused=True)
    return tuple(0 * p if g is None else g for g, p in zip(gradients, parameters, strict=True))


def domain_gradients(
    algorithm: Algorithm, batch: DomainBatch, create_graph: bool
) -> tuple[Tensor, list[Tensor]]:
    r"""The loss :math:`L_d` of every domain and its gradient :math:`g_d = \nabla L_d`.

    Every domain is sent through the network by itself. With ``create_graph`` losses and gradients carry their
    graph; without it the graph of a domain is freed before the next one begins. The losses have the shape
    ``[domains]``, and for each of the `trainable_parameters` there is one tensor ``[domains, *shape]``.
    """
    losses, rows, parameters = [], [], trainable_parameters(algorithm.network)
    for images, labels in zip(batch.images, batch.labels, strict=True):
        loss = algorithm.classification_loss(algorithm.network(images), labels)
        rows.append(gradients_of(loss, parameters, create_graph))
        losses.append(loss if create_graph else loss.detach())
    return torch.stack(losses), [torch.stack(column) for column in zip(*rows, strict=True)]
