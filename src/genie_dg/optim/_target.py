"""A parameter as plain local tensors, with the addresses of its random numbers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from genie_dg import _random

from ._update import Draw


class Target(NamedTuple):
    """A parameter to update. All tensors are plain, local and have one shape.

    ``number`` is the index of the parameter in the optimizer, ``whole`` the number of its elements.
    ``place`` maps local elements to element indices of the whole parameter: a number is the index of
    the first element of a contiguous run, a tensor (of the local shape) names each one.
    ``reduce`` sums a tensor over the ranks that hold the other shards; None when there are none.
    """

    p: Tensor
    m: Tensor
    v: Tensor
    number: int
    whole: int
    place: int | Tensor = 0
    reduce: Callable[[Tensor], Tensor] | None = None

    @property
    def in_order(self) -> bool:
        """True if the memory of all three tensors follows the element index."""
        return self.p.is_contiguous() and self.m.is_contiguous() and self.v.is_contiguous()

    def put_in_order(self) -> Target:
        """The same target with flat copies."""
        p, m, v = (t.contiguous().view(-1) for t in self[:3])
        return self._replace(p=p, m=m, v=v)

    def bring_home(self, away: Target) -> None:
        """Take over what was computed on the copies of `put_in_order`."""
        for old, new in ((self.p, away.p), (self.m, away.m), (self.v, away.v)):
            old.copy_(new.view(old.shape))

    def runs(self) -> list[Run]:
        """The target cut where the element index passes a multiple of 2^31: nearly always one run."""
        if isinstance(self.place, Tensor):
            return [Run(self.number, 0, 0, self.p.numel(), 0)]
        found = []
        start, total = 0, self.p.numel()
        while start < total:
            high, low = divmod(self.place + start, 1 << _random.INDEX_BITS)
            stop = min(total, start + (1 << _random.INDEX_BITS) - low)
            found.append(Run(self.number, high, start, stop, low))
            start = stop
        return found


class Run(NamedTuple):
    """Flat elements ``start:stop`` of a target that share a stream; ``low`` is the index of the first."""

    number: int
    high: int
    start: int
    stop: int
    low: int


@functools.lru_cache(maxsize=256)
def _bases(seed: int, streams: tuple[tuple[int, int], ...], device: torch.device) -> Tensor:
    columns = torch.tensor(streams, dtype=torch.int64, device=device).reshape(-1, 2)
    return _random.stream_base(seed, columns[:, 0], columns[:, 1])


def stream_keys(seed: int, runs: list[Run], steps: list[int | Tensor], device: torch.device) -> Tensor:
    """int32 ``[2, n]``: the key words of n runs. Host numbers are cached per set of streams."""
    if not runs:
        return torch.zeros(2, 0, dtype=torch.int32, device=device)
    streams = tuple((run.number, run.high) for run in runs)
    step: int | Tensor
    if isinstance(steps[0], Tensor):
        step = torch.stack([torch.as_tensor(t, device=device) for t in steps]).to(torch.int64)
        if torch.compiler.is_compiling():
            columns = torch.tensor(streams, dtype=torch.int64, device=device)
            return _random.stream_key(_random.stream_base(seed, columns[:, 0], columns[:, 1]), step)
    elif len(set(steps)) == 1:
        step = steps[0]
    else:
        step = torch.tensor(steps, dtype=torch.int64, device=device)
    return _random.stream_key(_bases(seed, streams, device), step)


def element_index(run: Run, start: int, stop: int, device: torch.device) -> Tensor:
    """int32 indices of the flat elements ``start:stop`` of a target inside ``run``."""
    low = run.low + start - run.start
    return torch.arange(low, low + stop - start, dtype=torch.int32, device=device)


def draw_at(
    index: Tensor,
    key0: _random.Word,
    key1: _random.Word,
    threshold: _random.Word,
    lanes: Tensor | None = None,
) -> Draw:
    """The draw for int32 element indices of any shape and order."""
    table = _random.lane_words(index.device) if lanes is None else lanes
    lanes = table[(index & (_random.LANES - 1)).long()]
    rows = index >> (_random.LANES.bit_length() - 1)
    return Draw(_random.row_words(rows, key0, key1), lanes, threshold)


def whole_draw(target: Target, keys: Tensor, runs: list[Run], threshold: int) -> Draw:
    """The draw for every element, in the shape of the target. ``keys`` is ``[2, len(runs)]``."""
    shape, device = target.p.shape, target.p.device
    if isinstance(target.place, Tensor):
        return draw_at(target.place.to(torch.int32), keys[0, 0], keys[1, 0], threshold)
    if len(runs) == 1:
        first, skip = divmod(runs[0].low, _random.LANES)
        n = runs[0].stop - runs[0].start
        rows = torch.arange(first, first + -(-(n + skip) // _random.LANES), dtype=torch.int32, device=device)
        row = _random.row_words(rows, keys[0, 0], keys[1, 0]).unsqueeze(1)
        spread = (row.expand(-1, _random.LANES), _random.lane_words(device).expand(len(rows), -1))
        words, lanes = (x.reshape(-1)[skip : skip + n].view(shape) for x in spread)
        return Draw(words, lanes, threshold)
    index = torch.cat([element_index(r, r.start, r.stop, device) for r in runs]).view(shape)
    counts = torch.tensor([r.stop - r.start for r in runs], device=device)
    words = keys.repeat_interleave(counts, dim=1).view(2, *shape)
    return draw_at(index, words[0], words[1], threshold)
