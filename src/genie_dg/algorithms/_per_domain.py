"""What algorithms that look at gradients domain by domain share: losses, gradients, and checks of settings."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from genie_dg._types import DomainBatch


def trainable(network: nn.Module) -> tuple[nn.Parameter, ...]:
    """The parameters that take part in training, in the network's order."""
    return tuple(p for p in network.parameters() if p.requires_grad)


def gradients_of(loss: Tensor, parameters: Sequence[Tensor], create_graph: bool) -> tuple[Tensor, ...]:
    """The gradient of a loss in each parameter; zeros where the loss does not depend on it.

    >>> used, unused = torch.ones(2, requires_grad=True), torch.ones(1, requires_grad=True)
    >>> [g.tolist() for g in gradients_of((used * torch.tensor([1.0, 2.0])).sum(), [used, unused], False)]
    [[1.0, 2.0], [0.0]]
    """
    found = torch.autograd.grad(loss, parameters, create_graph=create_graph, allow_unused=True)
    return tuple(0 * p if g is None else g for g, p in zip(found, parameters, strict=True))


def domain_gradients(
    network: nn.Module, batch: DomainBatch, parameters: Sequence[Tensor], create_graph: bool
) -> tuple[Tensor, list[Tensor]]:
    r"""The loss :math:`L_d` of every domain and its gradient :math:`g_d = \nabla L_d`.

    Every domain is sent through the network by itself, and without ``create_graph`` its graph is freed before
    the next one begins.

    Args:
        network: images to logits.
        batch: the domains.
        parameters: what to differentiate in.
        create_graph: losses and gradients carry their graph.

    Returns:
        the losses, of shape ``[domains]``, and for each parameter its gradients, ``[domains, *shape]``.
    """
    losses, rows = [], []
    for images, labels in zip(batch.images, batch.labels, strict=True):
        loss = cross_entropy(network(images), labels)
        rows.append(gradients_of(loss, parameters, create_graph))
        losses.append(loss if create_graph else loss.detach())
    return torch.stack(losses), [torch.stack(column) for column in zip(*rows, strict=True)]


def check_setting(name: str, value: float, low: float, high: float, open_end: bool = False) -> None:
    """Refuse a value outside ``[low, high]``, or outside ``[low, high)`` with ``open_end``.

    >>> check_setting("tau", 1.5, 0, 1)
    Traceback (most recent call last):
    ValueError: tau=1.5 came; it must lie in [0, 1], so choose a number there.
    """
    if not low <= value <= high or (open_end and value == high):
        end = ")" if open_end else "]"
        raise ValueError(
            f"{name}={value} came; it must lie in [{low:g}, {high:g}{end}, so choose a number there."
        )
