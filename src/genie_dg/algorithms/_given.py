"""A loss with a gradient of our own making, for algorithms that prescribe the update and not the objective."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


class _Given(torch.autograd.Function):
    """Value of a loss forward, prescribed gradients backward."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, count: int, *tensors: Tensor) -> Tensor:
        ctx.save_for_backward(*tensors[count:])
        return value.detach().clone()

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> tuple[Tensor | None, ...]:
        given = [outputs[0] * gradient for gradient in ctx.saved_tensors]
        return (None, None, *given, *([None] * len(given)))


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
    result: Tensor = _Given.apply(value, len(parameters), *parameters, *gradients)
    return result
