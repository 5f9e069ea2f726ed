"""Parameters cut into flat blocks: small tensors packed together, and the random words of the elements.

In eager code a large tensor is cut into blocks that stay in the processor's last cache while the thirty-odd
operations of a step pass over them, and that are large enough to be worth several threads; small tensors are
gathered into one block, so that a network's hundred biases cost one set of operations. Memory beyond the state
is a few blocks, whatever the size of the network.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from genie_dg import _random

from ._local import LocalParameter, stream_keys, words_at
from ._update import compute_dtype

_LANE_BITS = _random.LANES.bit_length() - 1
_GATHERED = 1 << 14
"""Pieces of more elements than this are worth a block of their own, which needs no copies."""


@dataclass(frozen=True)
class Piece:
    """Flat elements ``start:stop`` of the parameter at position ``owner``, numbered from ``first`` on."""

    owner: int
    first: int
    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start

    @property
    def rows(self) -> range:
        """The rows of lanes that its elements lie in."""
        return range(self.first >> _LANE_BITS, ((self.first + self.size - 1) >> _LANE_BITS) + 1)


def cut(parameters: list[LocalParameter], sizes: list[int]) -> list[Piece]:
    """Pieces of each parameter with at most so many elements."""
    return [
        Piece(owner, parameter.first + start, start, min(parameter.p.numel(), start + size))
        for owner, (parameter, size) in enumerate(zip(parameters, sizes, strict=True))
        for start in range(0, parameter.p.numel(), size)
    ]


def pack_pieces(pieces: list[Piece], ages: list[int], size: int) -> list[list[Piece]]:
    """Small pieces of the same age (so, the same scalars) share a block of at most ``size`` elements."""
    blocks: list[list[Piece]] = []
    space, age = 0, -1
    for piece in sorted(pieces, key=lambda piece: piece.size > _GATHERED):
        alone = piece.size > _GATHERED
        if alone or piece.size > space or ages[piece.owner] != age or not blocks:
            blocks.append([])
            space, age = size, ages[piece.owner]
        blocks[-1].append(piece)
        space = 0 if alone else space - piece.size
    return blocks


class RowWords:
    """The row words of all parameters, hashed at once in every step.

    A parameter has one row more than it needs: compiled kernels are made for two rows or more.
    """

    def __init__(self, seed: int, parameters: list[LocalParameter], device: torch.device) -> None:
        self._seed, self._numbers, self._device = seed, [own.number for own in parameters], device
        rows: list[Tensor] = []
        self._shifts, counts, self._total = [], [], 0
        for own in parameters:
            first = own.first >> _LANE_BITS
            counts.append(((own.first + own.p.numel() - 1) >> _LANE_BITS) - first + 2)
            rows.append(torch.arange(first, first + counts[-1], dtype=torch.int32, device=device))
            self._shifts.append(self._total - first)
            self._total += counts[-1]
        self._rows, self._counts = torch.cat(rows), torch.tensor(counts, dtype=torch.int64, device=device)
        self.keys, self.words = self._rows, self._rows

    def hash(self, steps: list[int | Tensor]) -> None:
        """Compute ``keys`` and ``words`` for the given step of each parameter."""
        self.keys = stream_keys(self._seed, self._numbers, steps, self._device)
        key0, key1 = self.keys.repeat_interleave(self._counts, dim=1, output_size=self._total)
        self.words = _random.row_words(self._rows, key0, key1)

    def place(self, piece: Piece) -> range:
        """Where ``words`` has the rows of a piece."""
        shift = self._shifts[piece.owner]
        return range(piece.rows.start + shift, piece.rows.stop + shift)


class Buffers:
    """Memory for n elements that the blocks of a plan share, so that it stays in the cache."""

    def __init__(self, n: int) -> None:
        self._floats = torch.empty(4, n, dtype=torch.float32)
        self._words = torch.empty(2, n // _random.LANES + 2, _random.LANES, dtype=torch.int32)

    def floats(self, n: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Four buffers of n elements."""
        x, y, z, spare = self._floats[:, :n]
        return x, y, z, spare

    def words(self, rows: int) -> tuple[Tensor, Tensor]:
        """Two buffers of rows of lanes."""
        out, spare = self._words[:, :rows]
        return out, spare


class Block:
    """A list of pieces that is computed as one flat tensor."""

    def __init__(self, pieces: list[Piece], parameters: list[LocalParameter], rows: RowWords) -> None:
        self.pieces, self._rows = pieces, rows
        self.owners = [piece.owner for piece in pieces]
        self.sizes = [piece.size for piece in pieces]
        flat = {i: [t.reshape(-1) for t in parameters[i][:3]] for i in set(self.owners)}
        self._views = [[flat[p.owner][f][p.start : p.stop] for p in pieces] for f in range(3)]
        device, self._index = self._views[0][0].device, None
        if len(pieces) > 1:
            ranges = [torch.arange(p.first, p.first + p.size, device=device) for p in pieces]
            self._index = torch.cat(ranges).to(torch.int32)

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
        """The gradients of the elements, in the dtype of the parameters or of the computation."""
        dtype = self._views[0][0].dtype
        views = []
        for piece, size in zip(self.pieces, self.sizes, strict=True):
            flat = grads[piece.owner].reshape(-1)
            if flat.dtype != dtype:
                flat = flat.to(compute_dtype(dtype))
            views.append(flat if flat.numel() == size else flat[piece.start : piece.stop])
        return views[0] if len(views) == 1 else torch.cat(views)

    def per_element(self, values: Tensor) -> Tensor:
        """One value per piece becomes one value per element (a scalar when there is one piece)."""
        if len(self.pieces) == 1:
            return values[..., 0]
        sizes = torch.tensor(self.sizes, device=values.device)
        return values.repeat_interleave(sizes, dim=-1, output_size=sum(self.sizes))

    def words(self, buffers: Buffers | None = None) -> Tensor:
        """A random word for each element; in ``buffers``, if given, where there is one piece."""
        if self._index is not None:
            key0, key1 = self.per_element(self._rows.keys[:, self.owners])
            return words_at(self._index, key0, key1)
        (piece,) = self.pieces
        place = self._rows.place(piece)
        row = self._rows.words[place.start : place.stop].unsqueeze(1)
        lanes = _random.lane_words(row.device)
        if buffers is None:
            words = _random.element_words(row, lanes)
        else:
            words = _random.element_words_(row, lanes, *buffers.words(len(place)))
        return words.view(-1)[piece.first & (_random.LANES - 1) :][: piece.size]
