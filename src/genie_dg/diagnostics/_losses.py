"""A loss as a function of named parameters, and batches as things that can be cut into samples.

In this package a loss is ``loss(model, *batch)``: a scalar, the mean over the batch. A batch is a tuple
(or any nesting of tuples, lists and dicts) of tensors whose first dimension counts samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils import _pytree as pytree

from genie_dg.check import InputError

Loss: TypeAlias = "Callable[..., Tensor]"
Batch: TypeAlias = Any
Parameters: TypeAlias = "dict[str, Tensor]"


class MeasurementError(InputError):
    """Something cannot be measured; the message says what was got, what is allowed and what to do."""


class _BoundLoss(nn.Module):
    """The model and its loss as one module, so that the loss sees swapped parameters."""

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.model = model
        self.loss = loss

    def forward(self, *batch: Any) -> Tensor:
        value = self.loss(self.model, *batch)
        if not isinstance(value, Tensor) or value.numel() != 1:
            got = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
            raise MeasurementError(
                f"The loss returned {got}; expected one number, so take the mean over the batch."
            )
        return value.reshape(())


def trainable(model: nn.Module) -> Parameters:
    """The parameters that are measured: those that require a gradient; a shared one appears once."""
    parameters: Parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if not parameters:
        raise MeasurementError(
            f"{type(model).__name__} has no parameter that requires a gradient; "
            "unfreeze at least one with requires_grad_(True)."
        )
    return parameters


def loss_of_parameters(model: nn.Module, loss: Loss) -> Callable[[Parameters, Batch], Tensor]:
    """The function ``f(parameters, batch)``; parameters that are not given keep the model's values."""
    # The bound module must not enter the caller's module tree: it is built here and dropped with the closure.
    bound = _BoundLoss(model, loss)

    def of_parameters(parameters: Parameters, batch: Batch) -> Tensor:
        named = {f"model.{name}": value for name, value in parameters.items()}
        arguments = tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)
        value: Tensor = functional_call(bound, named, arguments)
        return value

    return of_parameters


def sample_count(batch: Batch) -> int:
    """How many samples a batch holds."""
    leaves = pytree.tree_leaves(batch)
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.dim() > 0]
    counts = {len(leaf) for leaf in tensors}
    if len(tensors) != len(leaves) or len(counts) != 1:
        shapes = [tuple(leaf.shape) if isinstance(leaf, Tensor) else type(leaf).__name__ for leaf in leaves]
        raise MeasurementError(
            f"The batch holds {shapes}; expected tensors whose first dimension counts the same samples."
        )
    return counts.pop()


def take(batch: Batch, index: slice | Tensor) -> Batch:
    """Some samples of a batch."""
    return pytree.tree_map(lambda leaf: leaf[index], batch)


def pieces(batch: Batch, size: int) -> Iterator[Batch]:
    """A batch cut into consecutive pieces of ``size`` samples; the last may be smaller."""
    for start in range(0, sample_count(batch), size):
        yield take(batch, slice(start, start + size))


def gradients(loss: Tensor, parameters: Parameters, create_graph: bool = False) -> list[Tensor]:
    """The gradient of a loss by plain autograd, zero where the loss does not use a parameter."""
    values = list(parameters.values())
    computed: tuple[Tensor | None, ...] = ()
    if loss.requires_grad:
        computed = torch.autograd.grad(loss, values, create_graph=create_graph, allow_unused=True)
    if all(g is None for g in computed):
        raise independent(parameters)
    return [torch.zeros_like(p) if g is None else g for g, p in zip(computed, values, strict=True)]


def accumulator_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which gradients of a dtype are summed: at least float32."""
    return torch.promote_types(dtype, torch.float32)


def independent(parameters: Parameters) -> MeasurementError:
    return MeasurementError(
        f"The loss does not depend on any of the {len(parameters)} trainable tensors (first: "
        f"{next(iter(parameters))!r}); compute it from model(x), without detach() or no_grad()."
    )
