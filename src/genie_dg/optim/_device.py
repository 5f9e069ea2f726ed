"""The device path: flat blocks on any device, one stage of the update after the other, eager or compiled.

Eager, every block goes through the functions of `_update` as they are. With ``fused=True`` every large tensor
is a block of its own and goes through the same functions compiled: one kernel with a dynamic number of
elements, which reads and writes parameter and moments once and allocates nothing of the tensor's size. It is
compiled on the first use of a rule (some seconds, cached by torch on disk); the numbers of a step come in a
small tensor, so no schedule ever compiles it again. Tensors of a few thousand elements cost more to call than
to compute: they are packed and stay eager.

Where a group is ``split`` (float32 on CPU, eager), a calm block is stepped in place, together with the moments:
comparisons, ``torch.where`` and ``torch.tanh``, which cost five to twenty times a multiplication there, do not
occur.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from genie_dg import _random
from genie_dg._options import UpdateRule

from . import _update
from ._blocks import Block, Buffers, Piece, RowWords, cut, pack_pieces
from ._kernels import Kernels, kernels_for
from ._local import LocalParameter, sum_shards
from ._update import CALM, Perturbation, Randomness, Scalars, compute_dtype

_BLOCK_CPU, _BLOCK_DEVICE = 1 << 19, 1 << 22

PACKED_SIZE = 8192
"""Tensors of at most this many elements are packed instead of being given a kernel call each."""


@dataclass
class StepInputs:
    """What one step of a plan gets, by parameter; ``values`` are the scalars as tensors, for kernels."""

    grads: list[Tensor]
    scalars: list[Scalars]
    values: list[Tensor]


class EagerBlock(Block):
    """A block that goes through the functions of `_update` as they are."""

    def __init__(
        self, pieces: list[Piece], parameters: list[LocalParameter], plan: DevicePlan, buffers: Buffers
    ) -> None:
        super().__init__(pieces, parameters, plan.rows)
        self._plan, self._buffers = plan, buffers

    def advance(self, step: StepInputs) -> bool:
        """Move the moments, and calm blocks too where the plan is split; True if something is left to do."""
        rule, s, g = self._plan.rule, step.scalars[self.owners[0]], self.gather(step.grads)
        p, m, v = self.read()
        if not self._plan.split:
            self.write(None, *_update.advance(rule, p, g, m, v, s))
            return True
        out, beta, weight = self._buffers.floats(p.numel()), float(s.average.beta), float(s.average.weight)
        if rule.maximize:
            g = torch.neg(g, out=out[0])
        if rule.l2:
            g = torch.add(g, p, alpha=float(s.l2), out=out[0])
        m.mul_(beta).add_(g, alpha=weight)
        v.mul_(beta).addcmul_(g, g, value=weight).clamp_(max=torch.finfo(v.dtype).max)
        moments = _update.calm_moments(rule, m, v, s, out=out)
        low, high = torch.aminmax(moments.s2)
        calm = float(low) >= -CALM and float(high) <= CALM  # False when either is NaN
        if calm:
            change = _update.calm_step(rule, moments, v, s)
            if rule.mask:
                _random.zero_dropped_(change, self.words(self._buffers), self._plan.threshold)
            if rule.shrink:
                p.mul_(s.shrink)
            p.sub_(change, alpha=float(s.size))
        self.write(p if calm else None, m, v)
        return not calm

    def sums(self, step: StepInputs) -> list[Tensor]:
        """The two sums of kappa over each piece."""
        _, m, v = self.read()
        terms = torch.stack(_update.gate_terms(self._plan.rule, m, v, step.scalars[self.owners[0]]))
        return [part.sum(dim=1) for part in torch.split(terms, self.sizes, dim=1)]

    def finish(self, step: StepInputs, kappas: Tensor) -> None:
        """Move what `advance` has left."""
        rule = self._plan.rule
        word = self.words() if rule.needs_words else None
        by = Perturbation(self.per_element(kappas[self.owners]), word, self._plan.threshold)
        self.write(_update.stepped(rule, *self.read(), step.scalars[self.owners[0]], by), None, None)


class CompiledBlock:
    """All elements of a parameter, as rows of lanes or flat, that go through compiled stages."""

    def __init__(self, piece: Piece, parameter: LocalParameter, plan: DevicePlan, kernels: Kernels) -> None:
        self.owners, self._piece, self._plan, self._stage = [piece.owner], piece, plan, kernels.stage
        lanes = _random.LANES
        self._in_rows = piece.size >= 2 * lanes and piece.size % lanes == 0 and piece.first % lanes == 0
        self._p, self._m, self._v = (self._layout(t) for t in parameter[:3])
        place = plan.rows.place(piece)
        self._place = slice(place.start, place.stop if self._in_rows else max(place.stop, place.start + 2))
        skip = piece.first & (lanes - 1)
        self._fixed = torch.tensor([plan.threshold, skip], dtype=torch.int32, device=parameter.p.device)

    def _layout(self, t: Tensor) -> Tensor:
        """The elements as rows of lanes, or flat if they do not fill whole rows; a view if t is contiguous."""
        flat = t.contiguous().view(-1)
        flat = flat if self._piece.size == flat.numel() else flat[self._piece.start : self._piece.stop]
        return flat.view(-1, _random.LANES) if self._in_rows else flat

    def advance(self, step: StepInputs) -> bool:
        """Move the moments; True because the rest is left to do."""
        (i,), values = self.owners, step.values
        g = step.grads[i] if step.grads[i].dtype == self._p.dtype else step.grads[i].to(values[i].dtype)
        self._stage("advance", self._p, self._layout(g), self._m, self._v, values[i])
        return True

    def sums(self, step: StepInputs) -> list[Tensor]:
        """The two sums of kappa."""
        return [self._stage("sums", self._m, self._v, step.values[self.owners[0]])]

    def finish(self, step: StepInputs, kappas: Tensor) -> None:
        """Move what `advance` has left."""
        (i,) = self.owners
        rows = self._plan.rows.words[self._place]
        self._stage("finish", self._p, self._m, self._v, rows, step.values[i], self._fixed, kappas[i])


class DevicePlan:
    """The device path for parameters of one device and dtype, in index order.

    Args:
        rule: the switches.
        parameters: local ones.
        ages: their step counts, relative to any one.
        randomness: seed and threshold.
        split: step calm entries first and the others by `stepped`; else all by it.
        compiled: compile the stages.
    """

    def __init__(
        self,
        rule: UpdateRule,
        parameters: list[LocalParameter],
        ages: list[int],
        randomness: Randomness,
        split: bool,
        compiled: bool,
    ) -> None:
        self.rule, self.threshold, self.split = rule, randomness.threshold, split
        self._reduces = [parameter.reduce for parameter in parameters]
        device, dtype = parameters[0].p.device, parameters[0].p.dtype
        self._device, self._wide = device, compute_dtype(dtype)
        alone = {i for i, own in enumerate(parameters) if compiled and own.p.numel() > PACKED_SIZE}
        block = _BLOCK_CPU if device.type == "cpu" else _BLOCK_DEVICE
        sizes = [max(own.p.numel(), 1) if i in alone else block for i, own in enumerate(parameters)]
        pieces, self.rows = cut(parameters, sizes), RowWords(randomness.seed, parameters, device)
        # the kernels come first: if they cannot be compiled nothing has been changed
        self._compiled = [
            CompiledBlock(piece, parameters[piece.owner], self, kernels_for(rule, dtype, device))
            for piece in pieces
            if piece.owner in alone
        ]
        packed = pack_pieces([piece for piece in pieces if piece.owner not in alone], ages, block)
        buffers = Buffers(max((sum(p.size for p in own) for own in packed), default=0) if split else 0)
        self._blocks: list[CompiledBlock | EagerBlock] = [
            *self._compiled,
            *(EagerBlock(own, parameters, self, buffers) for own in packed),
        ]

    def run(self, grads: list[Tensor], scalars: list[Scalars], steps: list[int | Tensor]) -> None:
        """One step."""
        if self.rule.needs_words:
            self.rows.hash(steps)
        values = _values(scalars, self._wide, self._device) if self._compiled else []
        step = StepInputs(grads, scalars, values)
        live = [block for block in self._blocks if block.advance(step)]
        if not live and self.split:
            return
        kappas = self._kappas(live, step)
        for block in live:
            block.finish(step, kappas)

    def _kappas(self, live: list[CompiledBlock | EagerBlock], step: StepInputs) -> Tensor:
        """Kappa of every parameter that has a piece in a live block; 0 for the others."""
        zero = torch.zeros(2, dtype=self._wide, device=self._device)
        if not self.rule.needs_kappa:
            return zero[:1].expand(len(self._reduces))
        wanted = {owner for block in live for owner in block.owners}
        sums: list[list[Tensor]] = [[] for _ in self._reduces]
        for block in self._blocks:
            if not wanted.isdisjoint(block.owners):
                for owner, part in zip(block.owners, block.sums(step), strict=True):
                    sums[owner].append(part)
        totals = [torch.stack(parts).sum(0) if parts else zero for parts in sums]
        return _update.kappa_of(sum_shards(self._reduces, torch.stack(totals)))


def _values(scalars: list[Scalars], dtype: torch.dtype, device: torch.device) -> list[Tensor]:
    """The scalars of each parameter as a tensor; parameters that share them share the tensor."""
    tensors = {
        id(s): torch.stack([torch.as_tensor(x, dtype=dtype, device=device) for x in s.flat()])
        for s in {id(s): s for s in scalars}.values()
    }
    return [tensors[id(s)] for s in scalars]
