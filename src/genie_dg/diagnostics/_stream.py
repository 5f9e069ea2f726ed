r"""Mean and spread of many gradients, one at a time, in the memory of three gradients.

Welford's recurrence for the k-th gradient g:

.. math::
    \delta = g - \bar g, \qquad \bar g \leftarrow \bar g + \delta / k, \qquad
    M \leftarrow M + \tfrac{k-1}{k}\,\delta^2 .

Count, :math:`\bar g` and :math:`M = \sum (g_i - \bar g)^2` carry the same information as count, sum and sum of
squares, but nothing cancels when the signal is much larger than the noise.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype of accumulators: at least float32."""
    return torch.promote_types(dtype, torch.float32)


class Stream:
    """The running statistics of a sequence of gradients."""

    def __init__(self, like: Iterable[Tensor]) -> None:
        shapes = [p.detach() for p in like]
        self.count = 0
        self.mean = [
            torch.zeros_like(p, dtype=wide(p.dtype), memory_format=torch.contiguous_format) for p in shapes
        ]
        self.spread = [torch.zeros_like(m) for m in self.mean]
        self._delta = [torch.empty_like(m) for m in self.mean]

    @torch.no_grad()
    def add(self, gradient: Sequence[Tensor]) -> None:
        """One gradient, a tensor for each parameter."""
        self.count += 1
        k = self.count
        for g, mean, spread, delta in zip(gradient, self.mean, self.spread, self._delta, strict=True):
            torch.sub(g, mean, out=delta)
            mean.add_(delta, alpha=1 / k)
            spread.addcmul_(delta, delta, value=(k - 1) / k)
