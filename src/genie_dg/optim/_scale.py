r"""What ``scale_free=True`` adds: every tensor's gradient is brought to one size before the moments see it.

With :math:`n` the number of elements of a tensor, :math:`\beta` = ``beta`` and :math:`t = 1, 2, \dots`

.. math::
    w \leftarrow \beta w + (1-\beta) \|g\|^2 / n, \qquad
    g \leftarrow g \cdot \texttt{SIZE} \big/ \sqrt{w / (1 - \beta^t)} .

The rest of the rule is the published one, and its step is `STRIDE` times as long. So the loss may be multiplied
by any number and the weights stay the same. `SIZE` is small enough that the gate is open and the noise zero for
nearly every entry, as in the networks of the paper. `STRIDE` makes the published ``lr`` of 0.015 serve: where
gradients agree the root mean square of a step is ``lr`` * 0.2.

The state is :math:`\sqrt w` in the dtype of the parameter, because torch turns loaded state into that dtype.
"""

from __future__ import annotations

import torch
from torch import Tensor

from genie_dg._moments import Scalar

from ._local import SumOverRanks, sum_shards

SIZE = 1e-2
"""The root mean square of the gradient that the rule sees."""

STRIDE = 0.2 / SIZE
"""What the step is multiplied by."""

TINY = 1e-30
"""Gradients below this count as 0."""


def mean_squares(
    grads: list[Tensor], sizes: list[int], reduces: list[SumOverRanks | None], on_device: bool
) -> list[Scalar]:
    """The mean square of each tensor's gradient, whose local part is given; what is not finite counts as 0.

    Args:
        grads: local gradients.
        sizes: elements of the whole tensors.
        reduces: what sums over the ranks that have the other parts.
        on_device: tensors that nobody waits for, else Python numbers.
    """
    squares: list[Scalar] = [_sum_of_squares(g, on_device) for g in grads]
    if any(reduce is not None for reduce in reduces):
        device = grads[0].device
        together = torch.stack([torch.as_tensor(x, dtype=_wide(device), device=device) for x in squares])
        summed = sum_shards(reduces, together)
        squares = list(summed.unbind(0)) if on_device else summed.tolist()
    return [square / max(size, 1) for square, size in zip(squares, sizes, strict=True)]


def _wide(device: torch.device) -> torch.dtype:
    return torch.float32 if device.type == "mps" else torch.float64


def _sum_of_squares(g: Tensor, on_device: bool) -> Scalar:
    if not on_device and g.dtype in (torch.float32, torch.float64) and g.numel():
        quick = float(torch.linalg.vector_norm(g))
        if 1e-15 < quick < 1e15:  # an ordinary sum; else with care
            return quick * quick
    finite = torch.nan_to_num(g, 0.0, 0.0, 0.0)
    square = torch.linalg.vector_norm(finite, dtype=_wide(g.device)).square()
    return square if on_device else float(square)


def next_size(old: Tensor, square: Scalar, beta: float) -> Scalar:
    """The state after one more gradient."""
    size: Scalar = old.to(_wide(old.device)) if isinstance(square, Tensor) else float(old)
    return (size * size * beta + square * (1 - beta)) ** 0.5


def store(old: Tensor, new: Scalar) -> None:
    """Keep a state in its own dtype, never infinite."""
    largest = torch.finfo(old.dtype).max
    if isinstance(new, Tensor):
        old.copy_(new.clamp(max=largest))
    else:
        old.fill_(min(new, largest))


def factor(size: Scalar, beta: float, step: Scalar) -> Scalar:
    """What a gradient is multiplied by; 0 for a tensor that has had no gradient but 0."""
    power = beta ** (step.to(_wide(step.device)) if isinstance(step, Tensor) else step)
    known = SIZE * (1 - power) ** 0.5
    if isinstance(size, Tensor):
        return torch.where(size > TINY, known / size.clamp(min=TINY), 0.0)
    return known / size if size > TINY else 0.0


def scaled(g: Tensor, by: Scalar) -> Tensor:
    """The gradient times its factor, in float32 or wider."""
    wide = torch.float64 if g.dtype == torch.float64 else torch.float32
    by = by.to(device=g.device, dtype=wide) if isinstance(by, Tensor) else by
    return g.to(wide) * by
