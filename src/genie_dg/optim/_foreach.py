"""The eager path for many tensors: flat blocks of bounded size, small tensors packed together.

A large tensor is cut into blocks that stay in the processor's last cache while the thirty-odd operations of a
step pass over them, and that are large enough to be worth several threads; small tensors are gathered into one
block, so that a network's hundred biases cost one set of operations. Memory beyond the state is a few blocks,
whatever the size of the network.

A calm block (float32 on CPU) is stepped in place: comparisons, ``torch.where`` and ``torch.tanh``, which cost
five to twenty times a multiplication there, do not occur.

A plan holds what does not change from step to step: the cuts and the views of parameters and moments.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from genie_dg import _random

from ._local import Draw, LocalParameter, Stream, draw_at, stream_keys, sum_shards
from ._update import (
    CALM,
    Rule,
    Scalars,
    advance,
    calm_moments,
    calm_step,
    compute_dtype,
    finish,
    gate_terms,
    kappa_of,
)

BLOCK_CPU = 1 << 19
BLOCK_DEVICE = 1 << 22

GATHERED = 1 << 14
"""Pieces of more elements than this are worth a batch of their own, which needs no copies."""


@dataclass(frozen=True)
class Piece:
    """Flat elements ``start:stop`` of the parameter at position ``owner``.

    ``stream`` is the column of their keys and ``first`` the element index of the first of them.
    """

    owner: int
    stream: int
    first: int
    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start


def cut(parameters: list[LocalParameter], block: int) -> tuple[list[Piece], list[Stream], list[int]]:
    """Pieces of at most ``block`` elements, the streams they belong to, and the owner of each stream."""
    pieces: list[Piece] = []
    streams: list[Stream] = []
    owners: list[int] = []
    for owner, parameter in enumerate(parameters):
        for stream in parameter.streams():
            for start in range(stream.start, stream.stop, block):
                first = stream.low + start - stream.start
                stop = min(stream.stop, start + block)
                pieces.append(Piece(owner, len(streams), first, start, stop))
            streams.append(stream)
            owners.append(owner)
    return pieces, streams, owners


def pack(pieces: list[Piece], ages: list[int], block: int) -> list[list[Piece]]:
    """Small pieces of the same age (so, the same scalars) share a batch of at most ``block`` elements."""
    batches: list[list[Piece]] = []
    space, age = 0, -1
    for piece in sorted(pieces, key=lambda piece: piece.size > GATHERED):
        alone = piece.size > GATHERED
        if alone or piece.size > space or ages[piece.owner] != age or not batches:
            batches.append([])
            space, age = block, ages[piece.owner]
        batches[-1].append(piece)
        space = 0 if alone else space - piece.size
    return batches


class Scratch:
    """Buffers of float32 and int32 that the batches of a plan share, so that they stay in the cache."""

    def __init__(self) -> None:
        self._floats: tuple[Tensor, ...] = ()
        self._words: tuple[Tensor, ...] = ()

    def floats(self, n: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Four buffers of n elements."""
        if not self._floats or self._floats[0].numel() < n:
            self._floats = tuple(torch.empty(n, dtype=torch.float32) for _ in range(4))
        x, y, z, spare = (buffer[:n] for buffer in self._floats)
        return x, y, z, spare

    def words(self, rows: int) -> tuple[Tensor, Tensor]:
        """Two buffers of rows of lanes."""
        if not self._words or self._words[0].shape[0] < rows:
            self._words = tuple(torch.empty(rows, _random.LANES, dtype=torch.int32) for _ in range(2))
        out, spare = (buffer[:rows] for buffer in self._words)
        return out, spare


class Batch:
    """A list of pieces that is computed as one flat tensor."""

    def __init__(self, pieces: list[Piece], parameters: list[LocalParameter]) -> None:
        self.pieces = pieces
        self.owners = [piece.owner for piece in pieces]
        self.sizes = [piece.size for piece in pieces]
        self._elements = [parameters[i].elements for i in self.owners]
        self._scattered = any(isinstance(elements, Tensor) for elements in self._elements)
        on_cpu = parameters[self.owners[0]].p.device.type == "cpu"
        self._rows = _Rows(pieces) if on_cpu and len(pieces) > 1 and not self._scattered else None
        flat = {i: [t.reshape(-1) for t in parameters[i][:3]] for i in set(self.owners)}
        self._views = [[flat[p.owner][f][p.start : p.stop] for p in pieces] for f in range(3)]

    def read(self) -> tuple[Tensor, Tensor, Tensor]:
        """p, m and v: views when there is one piece, else gathered copies."""
        p, m, v = (views[0] if len(views) == 1 else torch.cat(views) for views in self._views)
        return p, m, v

    def write(self, *new: Tensor | None) -> None:
        """Scatter p, m and v; None, and what was computed in place, is left alone."""
        for views, values in zip(self._views, new, strict=True):
            if values is None:
                continue
            if len(views) > 1:
                torch._foreach_copy_(views, torch.split(values, self.sizes))
            elif values.data_ptr() != views[0].data_ptr():
                views[0].copy_(values)

    def gather(self, grads: list[Tensor]) -> Tensor:
        dtype = self._views[0][0].dtype
        views = []
        for piece, size in zip(self.pieces, self.sizes, strict=True):
            flat = grads[piece.owner].reshape(-1)
            if flat.dtype != dtype:
                flat = flat.to(compute_dtype(dtype))
            views.append(flat if flat.numel() == size else flat[piece.start : piece.stop])
        return views[0] if len(views) == 1 else torch.cat(views)

    def spread(self, values: Tensor) -> Tensor:
        """One value per piece becomes one value per element (a scalar when there is one piece)."""
        if len(self.pieces) == 1:
            return values[..., 0]
        sizes = torch.tensor(self.sizes, device=values.device)
        return values.repeat_interleave(sizes, dim=-1, output_size=sum(self.sizes))

    def draw(self, keys: Tensor, threshold: int) -> Draw:
        """The draw for every element."""
        parts = []
        for piece, elements in zip(self.pieces, self._elements, strict=True):
            if isinstance(elements, Tensor):
                parts.append(elements.reshape(-1)[piece.start : piece.stop].to(torch.int32))
            else:
                stop = piece.first + piece.size
                parts.append(torch.arange(piece.first, stop, dtype=torch.int32, device=keys.device))
        words = self.spread(keys[:, [piece.stream for piece in self.pieces]])
        return draw_at(parts[0] if len(parts) == 1 else torch.cat(parts), words[0], words[1], threshold)

    def words(self, keys: Tensor, scratch: Scratch) -> Tensor:
        """A random word for each element, on CPU; in ``scratch`` if the elements follow one another."""
        if self._rows is not None:
            return self._rows.words(keys)
        if self._scattered:
            return self.draw(keys, 0).word()
        (piece,) = self.pieces
        key0, key1 = keys[:, piece.stream].tolist()
        first, skip = divmod(piece.first, _random.LANES)
        last = (piece.first + piece.size - 1) // _random.LANES
        rows = torch.arange(first, last + 1, dtype=torch.int32)
        row = _random.row_words(rows, key0, key1).unsqueeze(1)
        words = _random.element_words_(row, _random.lane_words(row.device), *scratch.words(len(rows)))
        return words.view(-1)[skip:][: piece.size]


class _Rows:
    """The rows of several pieces: numbers, streams, and for each element its row and its lane word."""

    def __init__(self, pieces: list[Piece]) -> None:
        numbers, streams, places, lanes, count = [], [], [], [], 0
        words = _random.lane_words(torch.device("cpu"))
        for piece in pieces:
            index = torch.arange(piece.first, piece.first + piece.size)
            row = index // _random.LANES
            first, last = piece.first // _random.LANES, (piece.first + piece.size - 1) // _random.LANES
            numbers.append(torch.arange(first, last + 1, dtype=torch.int32))
            streams.append(torch.full((last - first + 1,), piece.stream))
            places.append((row - first + count).to(torch.int32))
            lanes.append(words[index % _random.LANES])
            count += last - first + 1
        self._numbers, self._streams = torch.cat(numbers), torch.cat(streams)
        self._places, self._lanes = torch.cat(places), torch.cat(lanes)

    def words(self, keys: Tensor) -> Tensor:
        key = keys[:, self._streams]
        rows = _random.row_words(self._numbers, key[0], key[1]).index_select(0, self._places)
        return _random.element_words_(rows, self._lanes, rows, torch.empty_like(rows))


class ForeachPlan:
    """The foreach path for parameters of one device and dtype, in index order.

    Args:
        ages: their step counts, relative to any one.
        split: step calm batches in place and the others by `finish`; else all by `finish`.
    """

    def __init__(
        self,
        rule: Rule,
        parameters: list[LocalParameter],
        ages: list[int],
        seed: int,
        threshold: int,
        split: bool,
    ) -> None:
        self._rule, self._parameters, self._seed, self._threshold = rule, parameters, seed, threshold
        self._device = parameters[0].p.device
        block = BLOCK_CPU if self._device.type == "cpu" else BLOCK_DEVICE
        pieces, self._streams, self._owners = cut(parameters, block)
        self._batches = [Batch(batch, parameters) for batch in pack(pieces, ages, block)]
        self._split, self._scratch = split, Scratch()

    def run(self, grads: list[Tensor], scalars: list[Scalars], steps: list[int | Tensor]) -> None:
        """One step."""
        keys = stream_keys(self._seed, self._streams, [steps[i] for i in self._owners], self._device)
        live = []
        for batch in self._batches:
            s = scalars[batch.owners[0]]
            if not (self._split and self._step_if_calm(batch, grads, s, keys)):
                live.append(batch)
                if not self._split:
                    p, m, v = batch.read()
                    batch.write(None, *advance(self._rule, p, batch.gather(grads), m, v, s))
        if not live and self._split:
            return
        kappas = self._kappas(live, scalars)
        for batch in live:
            kappa, draw = batch.spread(kappas[batch.owners]), batch.draw(keys, self._threshold)
            new_p = finish(self._rule, *batch.read(), scalars[batch.owners[0]], kappa, draw)
            batch.write(new_p, None, None)

    def _step_if_calm(self, batch: Batch, grads: list[Tensor], s: Scalars, keys: Tensor) -> bool:
        """Move the moments in place, and the parameters too if every entry is calm; True if so."""
        rule, beta, weight = self._rule, float(s.average.beta), float(s.average.weight)
        p, m, v = batch.read()
        g = batch.gather(grads)
        buffers = self._scratch.floats(p.numel())
        if rule.maximize:
            g = torch.neg(g, out=buffers[0])
        if rule.l2:
            g = torch.add(g, p, alpha=float(s.l2), out=buffers[0])
        m.mul_(beta).add_(g, alpha=weight)
        v.mul_(beta).addcmul_(g, g, value=weight).clamp_(max=torch.finfo(v.dtype).max)
        moments = calm_moments(rule, m, v, s, out=buffers)
        low, high = torch.aminmax(moments.s2)
        calm = float(low) >= -CALM and float(high) <= CALM  # False when either is NaN
        if calm:
            step = calm_step(rule, moments, v, s)
            if rule.mask:
                _random.zero_dropped_(step, batch.words(keys, self._scratch), self._threshold)
            if rule.shrink:
                p.mul_(s.shrink)
            p.sub_(step, alpha=float(s.size))
        batch.write(p if calm else None, m, v)
        return calm

    def _kappas(self, live: list[Batch], scalars: list[Scalars]) -> Tensor:
        """Kappa of every parameter that has a piece in a live batch; 0 for the others."""
        rule, parameters = self._rule, self._parameters
        zero = torch.zeros(2, dtype=compute_dtype(parameters[0].p.dtype), device=self._device)
        if not rule.needs_kappa:
            return zero[:1].expand(len(parameters))
        wanted = {owner for batch in live for owner in batch.owners}
        sums: list[list[Tensor]] = [[] for _ in parameters]
        for batch in self._batches:
            if wanted.isdisjoint(batch.owners):
                continue
            _, m, v = batch.read()
            terms = torch.stack(gate_terms(rule, m, v, scalars[batch.owners[0]]))
            for owner, part in zip(batch.owners, torch.split(terms, batch.sizes, dim=1), strict=True):
                sums[owner].append(part.sum(dim=1))
        totals = [torch.stack(parts).sum(0) if parts else zero for parts in sums]
        return kappa_of(sum_shards([own.reduce for own in parameters], torch.stack(totals)))
