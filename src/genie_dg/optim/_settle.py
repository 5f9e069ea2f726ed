"""One eager block on CPU, with every operation in place: the fast half of the foreach path.

The same arithmetic as `_update.advance`, written for a processor without a compiler: a block and four
scratch buffers stay in its cache, and comparisons, ``torch.where`` and ``torch.tanh`` (five to twenty times
the cost of a multiplication there) do not occur. That is possible because a block whose entries are all calm
needs none of them; any other block is left to `_update.finish`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from genie_dg import _random
from genie_dg._moments import FLOOR

from ._update import CALM, Rule, Scalars

WordSource: TypeAlias = "Callable[[Settler], Tensor]"


class Settler:
    """Scratch memory and the step of calm float32 blocks on CPU."""

    def __init__(self, rule: Rule, threshold: int) -> None:
        self._rule = rule
        self._threshold = threshold
        self._buffers: tuple[Tensor, ...] = ()
        self._words: tuple[Tensor, ...] = ()

    def _scratch(self, n: int) -> tuple[Tensor, ...]:
        if not self._buffers or self._buffers[0].numel() < n:
            self._buffers = tuple(torch.empty(n, dtype=torch.float32) for _ in range(3))
        return tuple(buffer[:n] for buffer in self._buffers)

    def run_words(self, low: int, n: int, key0: _random.Word, key1: _random.Word) -> Tensor:
        """The words of n elements in a row from element index ``low``; overwritten by the next call."""
        first, last = low // _random.LANES, (low + n - 1) // _random.LANES
        count = last - first + 1
        if not self._words or self._words[0].shape[0] < count:
            self._words = tuple(torch.empty(count, _random.LANES, dtype=torch.int32) for _ in range(2))
        rows = torch.arange(first, last + 1, dtype=torch.int32)
        row = _random.row_words(rows, key0, key1).unsqueeze(1)
        out, scratch = (buffer[:count] for buffer in self._words)
        words = _random.element_words_(row, _random.lane_words(row.device), out, scratch)
        return words.view(-1)[low - first * _random.LANES :][:n]

    def settle(self, p: Tensor, g: Tensor, m: Tensor, v: Tensor, s: Scalars, words: WordSource) -> bool:
        """Move m and v in place. If every entry is calm move p in place too and return True."""
        rule, average = self._rule, s.average
        beta, weight, correct = float(average.beta), float(average.weight), float(average.inverse_correction)
        x, y, z = self._scratch(p.numel())
        if rule.maximize:
            g = torch.neg(g, out=x)
        if rule.l2:
            g = torch.add(g, p, alpha=float(s.l2), out=x)
        m.mul_(beta).add_(g, alpha=weight)
        v.mul_(beta).addcmul_(g, g, value=weight).clamp_(max=torch.finfo(v.dtype).max)
        if rule.formulation == "released":
            torch.mul(m, correct, out=x)
            torch.mul(x, x, out=y)
            torch.mul(v, correct, out=z).sub_(y).mul_(average.inverse_freedom)
        else:
            torch.mul(m, m, out=y)
            torch.sub(v, y, out=z)
        low, high = torch.aminmax(z)
        if not (float(low) >= -CALM and float(high) <= CALM):  # also when either is NaN
            return False
        if rule.formulation == "released":
            step = x
            if rule.precondition:
                signal = y.add_(FLOOR)
                noisy = torch.threshold_(z, 0.0, FLOOR).mul_(average.rho).add_(signal)
                step = signal.div_(noisy).mul_(x)
        else:
            torch.mul(m, correct, out=x)
            step = x
            if rule.precondition:
                step = y.div_(torch.clamp(v, min=FLOOR, out=z)).mul_(x)
        if rule.mask:
            _random.zero_dropped_(step, words(self), self._threshold)
        if rule.shrink:
            p.mul_(s.shrink)
        p.sub_(step, alpha=float(s.size))
        return True
