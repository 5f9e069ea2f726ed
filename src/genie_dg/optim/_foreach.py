"""The eager path for many tensors: flat blocks of bounded size, small tensors packed together.

A large tensor is cut into blocks that stay in the processor's cache while the thirty-odd operations of a
step pass over them; small tensors are gathered into one block, so that a network's hundred biases cost
one set of operations. Memory beyond the state is a few blocks, whatever the size of the network.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ._settle import Settler
from ._target import Run, Target, element_index, stream_keys
from ._update import Draw, Rule, Scalars, advance, compute_dtype, finish, gate_terms, kappa_of

BLOCK_CPU = 1 << 16
BLOCK_DEVICE = 1 << 22


class Flat(NamedTuple):
    """One-dimensional views of a target's tensors (copies where the memory is not in index order)."""

    p: Tensor
    g: Tensor
    m: Tensor
    v: Tensor


@dataclass(frozen=True)
class Piece:
    """Elements ``start:stop`` of the target number ``owner``; ``stream`` is a column of the keys."""

    owner: int
    stream: int
    run: Run
    start: int
    stop: int


def flatten(target: Target) -> Flat:
    return Flat(target.p.reshape(-1), target.g.reshape(-1), target.m.reshape(-1), target.v.reshape(-1))


def write_back(target: Target, flat: Flat) -> None:
    """Bring home what `flatten` had to copy; a view is its own home."""
    for home, away in ((target.p, flat.p), (target.m, flat.m), (target.v, flat.v)):
        if not home.is_contiguous():
            home.copy_(away.view(home.shape))


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


def pack(pieces: list[Piece], targets: list[Target], block: int) -> list[list[Piece]]:
    """Neighbouring pieces with the same scalars share a batch of at most ``block`` elements."""
    batches: list[list[Piece]] = []
    room = 0
    last: Scalars | None = None
    for piece in pieces:
        size, scalars = piece.stop - piece.start, targets[piece.owner].scalars
        if size > room or scalars is not last:
            batches.append([])
            room = block
        batches[-1].append(piece)
        room -= size
        last = scalars
    return batches


class Batch:
    """A list of pieces that is computed as one flat tensor."""

    def __init__(self, pieces: list[Piece], targets: list[Target], flats: list[Flat]) -> None:
        self.pieces = pieces
        self.scalars = targets[pieces[0].owner].scalars
        self.lengths = [piece.stop - piece.start for piece in pieces]
        self._targets = targets
        self._flats = flats

    def views(self, field: int) -> list[Tensor]:
        return [self._flats[p.owner][field][p.start : p.stop] for p in self.pieces]

    def read(self, field: int) -> Tensor:
        views = self.views(field)
        return views[0] if len(views) == 1 else torch.cat(views)

    def write(self, field: int, new: Tensor) -> None:
        views = self.views(field)
        if len(views) > 1:
            torch._foreach_copy_(views, torch.split(new, self.lengths))
        elif new.data_ptr() != views[0].data_ptr():
            views[0].copy_(new)

    def spread(self, values: Tensor) -> Tensor:
        """One value per piece becomes one value per element (a scalar when there is one piece)."""
        if len(self.pieces) == 1:
            return values[..., 0]
        lengths = torch.tensor(self.lengths, device=values.device)
        return values.repeat_interleave(lengths, dim=-1, output_size=sum(self.lengths))

    def draw(self, keys: Tensor, threshold: int) -> Draw:
        parts = [self._index(piece, keys.device) for piece in self.pieces]
        words = self.spread(keys[:, [piece.stream for piece in self.pieces]])
        return Draw(parts[0] if len(parts) == 1 else torch.cat(parts), words[0], words[1], threshold)

    def advance(self, rule: Rule, keys: Tensor, threshold: int, settler: Settler | None) -> bool:
        """Move the moments, and the parameters too if every entry is calm; True if so."""
        p, g, m, v = (self.read(i) for i in range(4))
        done = False
        if settler is None:
            draw = self.draw(keys, threshold)
            _, new_m, new_v, _ = advance(rule, p, g, m, v, self.scalars, draw, split=False)
            m.copy_(new_m)
            v.copy_(new_v)
        else:
            done = settler.settle(p, g, m, v, self.scalars, lambda: self.draw(keys, threshold))
        self.write(2, m)
        self.write(3, v)
        if done:
            self.write(0, p)
        return done

    def _index(self, piece: Piece, device: torch.device) -> Tensor:
        place = self._targets[piece.owner].place
        if isinstance(place, Tensor):
            return place.reshape(-1)[piece.start : piece.stop].to(torch.int32)
        return element_index(piece.run, piece.start, piece.stop, device)


def step_foreach(
    rule: Rule, targets: list[Target], steps: list[int | Tensor], seed: int, threshold: int, split: bool
) -> None:
    """Update every target in place. All targets are on one device and have one dtype."""
    device = targets[0].p.device
    block = BLOCK_CPU if device.type == "cpu" else BLOCK_DEVICE
    pieces, runs, owners = cut(targets, block)
    flats = [flatten(target) for target in targets]
    keys = stream_keys(seed, runs, [steps[owner] for owner in owners], device)
    batches = [Batch(batch, targets, flats) for batch in pack(pieces, targets, block)]
    settled = Settler(rule, threshold) if split else None
    live = [batch for batch in batches if not batch.advance(rule, keys, threshold, settled)]
    if live or not split:
        kappas = _kappas(rule, targets, batches, live)
        for batch in live:
            kappa = batch.spread(kappas[[piece.owner for piece in batch.pieces]])
            p, m, v = batch.read(0), batch.read(2), batch.read(3)
            draw = batch.draw(keys, threshold)
            batch.write(0, finish(rule, p, m, v, batch.scalars, kappa, draw, split=False))
    for target, flat in zip(targets, flats, strict=True):
        write_back(target, flat)


def _kappas(rule: Rule, targets: list[Target], batches: list[Batch], live: list[Batch]) -> Tensor:
    """Kappa of every target that has a piece in a live batch; 0 for the others."""
    device = targets[0].p.device
    if not rule.needs_kappa:
        return torch.zeros(len(targets), device=device)
    wanted = {piece.owner for batch in live for piece in batch.pieces}
    sums: list[list[Tensor]] = [[] for _ in targets]
    for batch in batches:
        if all(piece.owner not in wanted for piece in batch.pieces):
            continue
        terms = torch.stack(gate_terms(rule, batch.read(2), batch.read(3), batch.scalars))
        for piece, part in zip(batch.pieces, torch.split(terms, batch.lengths, dim=1), strict=True):
            sums[piece.owner].append(part.sum(dim=1))
    zero = torch.zeros(2, dtype=compute_dtype(targets[0].p.dtype), device=device)
    totals = [torch.stack(parts).sum(0) if parts else zero for parts in sums]
    return kappa_of(finish_shards(rule, targets, torch.stack(totals)))


def finish_shards(rule: Rule, targets: list[Target], sums: Tensor) -> Tensor:
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
