"""The eager path for many tensors: flat blocks of bounded size, small tensors packed together.

A large tensor is cut into blocks that stay in the processor's last cache while the thirty-odd operations of a
step pass over them, and that are large enough to be worth several threads; small tensors are gathered into one
block, so that a network's hundred biases cost one set of operations. Memory beyond the state is a few blocks,
whatever the size of the network.

A plan holds what does not change from step to step: the cuts and the views of parameters and moments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from genie_dg import _random

from ._settle import Settler
from ._target import Run, Target, draw_at, element_index, stream_keys
from ._update import Draw, Rule, Scalars, advance, compute_dtype, finish, gate_terms, kappa_of

BLOCK_CPU = 1 << 19
BLOCK_DEVICE = 1 << 22

GATHERED = 1 << 14
"""Pieces of more elements than this are worth a batch of their own, which needs no copies."""


@dataclass(frozen=True)
class Piece:
    """Elements ``start:stop`` of the target number ``owner``; ``stream`` is a column of the keys."""

    owner: int
    stream: int
    run: Run
    start: int
    stop: int


def cut(targets: list[Target], block: int) -> tuple[list[Piece], list[Run], list[int]]:
    """Pieces of at most ``block`` elements, the runs they belong to, and the owner of each run."""
    pieces, runs, owners = [], [], []
    for owner, target in enumerate(targets):
        for run in target.runs():
            runs.append(run)
            owners.append(owner)
            for start in range(run.start, run.stop, block):
                stop = min(run.stop, start + block)
                pieces.append(Piece(owner, len(runs) - 1, run, start, stop))
    return pieces, runs, owners


def pack(pieces: list[Piece], ages: list[int], block: int) -> list[list[Piece]]:
    """Small pieces of the same age (so, the same scalars) share a batch of at most ``block`` elements."""
    batches: list[list[Piece]] = []
    room, age = 0, -1
    for piece in sorted(pieces, key=lambda piece: piece.stop - piece.start > GATHERED):
        size = piece.stop - piece.start
        alone = size > GATHERED
        if alone or size > room or ages[piece.owner] != age or not batches:
            batches.append([])
            room, age = block, ages[piece.owner]
        batches[-1].append(piece)
        room = 0 if alone else room - size
    return batches


class Batch:
    """A list of pieces that is computed as one flat tensor."""

    def __init__(self, pieces: list[Piece], targets: list[Target]) -> None:
        self.pieces = pieces
        self.owners = [piece.owner for piece in pieces]
        self.lengths = [piece.stop - piece.start for piece in pieces]
        self._targets = targets
        self._rows = _Rows(pieces) if self._gathered else None
        flat = {i: [t.reshape(-1) for t in targets[i][:3]] for i in set(self.owners)}
        self._homes = [[flat[p.owner][f][p.start : p.stop] for p in pieces] for f in range(3)]

    def read(self) -> tuple[Tensor, Tensor, Tensor]:
        """p, m and v: views when there is one piece, else gathered copies."""
        p, m, v = (home[0] if len(home) == 1 else torch.cat(home) for home in self._homes)
        return p, m, v

    def write(self, *new: Tensor | None) -> None:
        """Scatter p, m and v; None and what is at home already stay."""
        for home, values in zip(self._homes, new, strict=True):
            if values is None:
                continue
            if len(home) > 1:
                torch._foreach_copy_(home, torch.split(values, self.lengths))
            elif values.data_ptr() != home[0].data_ptr():
                home[0].copy_(values)

    def gather(self, grads: list[Tensor]) -> Tensor:
        views = []
        for piece, length in zip(self.pieces, self.lengths, strict=True):
            flat = grads[piece.owner].reshape(-1)
            views.append(flat if flat.numel() == length else flat[piece.start : piece.stop])
        return views[0] if len(views) == 1 else torch.cat(views)

    def spread(self, values: Tensor) -> Tensor:
        """One value per piece becomes one value per element (a scalar when there is one piece)."""
        if len(self.pieces) == 1:
            return values[..., 0]
        lengths = torch.tensor(self.lengths, device=values.device)
        return values.repeat_interleave(lengths, dim=-1, output_size=sum(self.lengths))

    def draw(self, keys: Tensor, threshold: int) -> Draw:
        parts = [self._index(piece, keys.device) for piece in self.pieces]
        words = self.spread(keys[:, [piece.stream for piece in self.pieces]])
        return draw_at(parts[0] if len(parts) == 1 else torch.cat(parts), words[0], words[1], threshold)

    @property
    def _gathered(self) -> bool:
        """Several pieces of float32 on CPU, each a run: what `words` can prepare."""
        plain = all(not isinstance(self._targets[i].place, Tensor) for i in self.owners)
        return plain and len(self.pieces) > 1 and self._targets[self.owners[0]].p.device.type == "cpu"

    def words(self, settler: Settler, keys: Tensor, threshold: int) -> Tensor:
        """A random word for each element, the short way if the elements follow one another."""
        piece = self.pieces[0]
        if self._rows is not None:
            return self._rows.words(keys)
        if isinstance(self._targets[piece.owner].place, Tensor):
            return self.draw(keys, threshold).word()
        low = piece.run.low + piece.start - piece.run.start
        key0, key1 = keys[:, piece.stream].tolist()
        return settler.run_words(low, piece.stop - piece.start, key0, key1)

    def _index(self, piece: Piece, device: torch.device) -> Tensor:
        place = self._targets[piece.owner].place
        if isinstance(place, Tensor):
            return place.reshape(-1)[piece.start : piece.stop].to(torch.int32)
        return element_index(piece.run, piece.start, piece.stop, device)


class _Rows:
    """The rows of several pieces: numbers, streams, and for each element its row and its lane word."""

    def __init__(self, pieces: list[Piece]) -> None:
        numbers, streams, places, lanes, count = [], [], [], [], 0
        words = _random.lane_words(torch.device("cpu"))
        for piece in pieces:
            low = piece.run.low + piece.start - piece.run.start
            index = torch.arange(low, low + piece.stop - piece.start)
            row = index // _random.LANES
            first, last = low // _random.LANES, (low + len(index) - 1) // _random.LANES
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
    """The foreach path for targets of one device and dtype, in index order."""

    def __init__(
        self, rule: Rule, targets: list[Target], ages: list[int], seed: int, threshold: int, split: bool
    ) -> None:
        self._rule, self._targets, self._seed, self._threshold = rule, targets, seed, threshold
        self._device = targets[0].p.device
        block = BLOCK_CPU if self._device.type == "cpu" else BLOCK_DEVICE
        pieces, self._runs, self._owners = cut(targets, block)
        self._batches = [Batch(batch, targets) for batch in pack(pieces, ages, block)]
        self._settler = Settler(rule, threshold) if split else None

    def run(self, grads: list[Tensor], scalars: list[Scalars], steps: list[int | Tensor]) -> None:
        """One step."""
        rule, threshold = self._rule, self._threshold
        keys = stream_keys(self._seed, self._runs, [steps[i] for i in self._owners], self._device)
        live = [b for b in self._batches if not self._advance(b, grads, scalars[b.owners[0]], keys)]
        if live or self._settler is None:
            kappas = self._kappas(live, scalars)
            for batch in live:
                kappa = batch.spread(kappas[batch.owners])
                p, m, v = batch.read()
                s, draw = scalars[batch.owners[0]], batch.draw(keys, threshold)
                new_p, _ = finish(rule, p, m, v, s, kappa, draw, split=False)
                batch.write(new_p, None, None)

    def _advance(self, batch: Batch, grads: list[Tensor], s: Scalars, keys: Tensor) -> bool:
        """Move the moments, and the parameters too if every entry is calm; True if so."""
        p, m, v = batch.read()
        g = batch.gather(grads)
        if self._settler is None:
            draw = batch.draw(keys, self._threshold)
            _, new_m, new_v, _ = advance(self._rule, p, g, m, v, s, draw, split=False)
            batch.write(None, new_m, new_v)
            return False
        done = self._settler.settle(p, g, m, v, s, lambda it: batch.words(it, keys, self._threshold))
        batch.write(p if done else None, m, v)
        return done

    def _kappas(self, live: list[Batch], scalars: list[Scalars]) -> Tensor:
        """Kappa of every target that has a piece in a live batch; 0 for the others."""
        rule, targets = self._rule, self._targets
        zero = torch.zeros(2, dtype=compute_dtype(targets[0].p.dtype), device=self._device)
        if not rule.needs_kappa:
            return zero[:1].expand(len(targets))
        wanted = {owner for batch in live for owner in batch.owners}
        sums: list[list[Tensor]] = [[] for _ in targets]
        for batch in self._batches:
            if wanted.isdisjoint(batch.owners):
                continue
            _, m, v = batch.read()
            terms = torch.stack(gate_terms(rule, m, v, scalars[batch.owners[0]]))
            for owner, part in zip(batch.owners, torch.split(terms, batch.lengths, dim=1), strict=True):
                sums[owner].append(part.sum(dim=1))
        totals = [torch.stack(parts).sum(0) if parts else zero for parts in sums]
        return kappa_of(sum_shards(rule, targets, torch.stack(totals)))


def sum_shards(rule: Rule, targets: list[Target], sums: Tensor) -> Tensor:
    """The sums ``[n, 2]`` over all shards: one collective for all targets that share their ranks."""
    if not rule.needs_kappa:
        return sums
    groups: dict[Callable[[Tensor], Tensor], list[int]] = {}
    for i, target in enumerate(targets):
        if target.reduce is not None:
            groups.setdefault(target.reduce, []).append(i)
    for reduce, members in groups.items():
        sums[members] = reduce(sums[members])
    return sums
