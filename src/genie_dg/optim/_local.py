"""A parameter as the plain tensors of this rank, and the addresses of its random numbers.

For a sharded parameter (FSDP2, tensor parallel): which elements are here, and which ranks have the others.
"""

from __future__ import annotations

import functools
import math
import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from genie_dg import _random
from genie_dg.check import InputError


@dataclass(frozen=True)
class SumOverRanks:
    """Sums a tensor over the process groups that share a parameter's shards."""

    groups: tuple[Any, ...]

    def __call__(self, x: Tensor) -> Tensor:
        x = x.clone()
        for group in self.groups:
            torch.distributed.all_reduce(x, group=group)
        return x


def is_sharded(p: Tensor) -> bool:
    """True for a DTensor; does not import torch.distributed.tensor when nobody else has."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(p, module.DTensor)


def local(p: Tensor) -> Tensor:
    """The plain tensor of this rank, sharing memory with p."""
    return p.to_local() if is_sharded(p) else p  # type: ignore[attr-defined]


def local_gradient(p: Tensor, g: Tensor) -> Tensor:
    """The gradient laid out like the parameter."""
    if not is_sharded(p):
        return g
    if g.placements != p.placements:  # type: ignore[attr-defined]
        g = g.redistribute(placements=p.placements)  # type: ignore[attr-defined]
    return g.to_local()  # type: ignore[attr-defined, no-any-return]


def shard_groups(p: Tensor) -> tuple[Any, ...]:
    """The process groups that share the shards of a parameter; none for a plain tensor."""
    if not is_sharded(p):
        return ()
    placements, mesh = p.placements, p.device_mesh  # type: ignore[attr-defined]
    return tuple(mesh.get_group(i) for i, place in enumerate(placements) if not place.is_replicate())


def sum_over_ranks(p: Tensor) -> SumOverRanks | None:
    """What sums over the ranks that have the other shards; None when there are none."""
    groups = shard_groups(p)
    return SumOverRanks(groups) if groups else None


def local_elements(p: Tensor) -> int | Tensor:
    """Which elements of the whole parameter are here.

    Returns the index of the first where they follow one another, else an index for each, in the local shape.
    """
    if p.numel() >= 1 << _random.INDEX_BITS:
        raise InputError(
            f"got a parameter of shape {tuple(p.shape)}; expected fewer than 2^{_random.INDEX_BITS} elements, "
            "so cut it into several parameters."
        )
    if not is_sharded(p):
        return 0
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    placements = p.placements  # type: ignore[attr-defined]
    shape, offset = compute_local_shape_and_global_offset(p.shape, p.device_mesh, placements)  # type: ignore[attr-defined]
    dims = {place.dim % max(p.dim(), 1) for place in placements if not place.is_replicate()}
    if dims <= {0}:
        return int(offset[0] * math.prod(p.shape[1:])) if dims else 0
    elements = torch.zeros((), dtype=torch.int64, device=local(p).device)
    stride = 1
    for dim in reversed(range(p.dim())):
        along = torch.arange(offset[dim], offset[dim] + shape[dim], device=elements.device) * stride
        elements = elements + along.view(-1, *[1] * (p.dim() - dim - 1))
        stride *= p.shape[dim]
    return elements


class LocalParameter(NamedTuple):
    """A parameter to update. All tensors are plain, local and have one shape.

    ``number`` is the index of the parameter in the optimizer and ``elements`` says which elements of the whole
    parameter are here (see `local_elements`). ``reduce`` sums a tensor over the
    ranks that hold the other shards; None when there are none.
    """

    p: Tensor
    m: Tensor
    v: Tensor
    number: int
    elements: int | Tensor = 0
    reduce: SumOverRanks | None = None

    @property
    def is_contiguous(self) -> bool:
        """True if the memory of all three tensors follows the element index."""
        return self.p.is_contiguous() and self.m.is_contiguous() and self.v.is_contiguous()

    def flat_copy(self) -> LocalParameter:
        """The same parameter with flat, contiguous tensors."""
        p, m, v = (t.contiguous().view(-1) for t in self[:3])
        return self._replace(p=p, m=m, v=v)

    def copy_from(self, flat: LocalParameter) -> None:
        """Take over what was computed on a `flat_copy`."""
        for own, new in zip(self[:3], flat[:3], strict=True):
            own.copy_(new.view(own.shape))

    @property
    def first(self) -> int:
        """The index of the first element here, where they follow one another."""
        return 0 if isinstance(self.elements, Tensor) else self.elements


def local_parameters(
    params: list[Tensor], averages: list[Tensor], squares: list[Tensor], numbers: list[int]
) -> list[LocalParameter]:
    """Parameters and their moments as plain local tensors."""
    result = []
    for p, m, v, number in zip(params, averages, squares, numbers, strict=True):
        reduce = sum_over_ranks(p)
        tensors = (local(p.detach()), local(m), local(v))
        result.append(LocalParameter(*tensors, number, local_elements(p), reduce))
    return result


def sum_shards(reduces: list[SumOverRanks | None], sums: Tensor) -> Tensor:
    """The sums ``[n, ...]`` over all shards: one collective for all parameters that share their ranks."""
    members: dict[SumOverRanks, list[int]] = {}
    for i, reduce in enumerate(reduces):
        if reduce is not None:
            members.setdefault(reduce, []).append(i)
    for reduce, own in members.items():
        sums[own] = reduce(sums[own])
    return sums


def _bases(seed: int, numbers: tuple[int, ...], device: torch.device) -> Tensor:
    column = torch.tensor(numbers, dtype=torch.int64, device=device)
    return _random.stream_base(seed, column, torch.zeros_like(column))


_cached_bases = functools.lru_cache(maxsize=256)(_bases)


def stream_keys(seed: int, numbers: list[int], steps: list[int | Tensor], device: torch.device) -> Tensor:
    """int32 ``[2, n]``: the key words of n parameters. Their constant part is cached."""
    step: int | Tensor
    if isinstance(steps[0], Tensor):
        step = torch.stack([torch.as_tensor(t, device=device) for t in steps]).to(torch.int64)
    elif len(set(steps)) == 1:
        step = steps[0]
    else:
        step = torch.tensor(steps, dtype=torch.int64, device=device)
    bases = _bases if torch.compiler.is_compiling() else _cached_bases
    return _random.stream_key(bases(seed, tuple(numbers), device), step)


def words_at(index: Tensor, key0: _random.Word, key1: _random.Word) -> Tensor:
    """A random word for each int32 element index, of any shape and order."""
    lanes = _random.lane_words(index.device)[(index & (_random.LANES - 1)).long()]
    rows = index >> (_random.LANES.bit_length() - 1)
    return _random.element_words(_random.row_words(rows, key0, key1), lanes)


def whole_words(parameter: LocalParameter, keys: Tensor) -> Tensor:
    """A random word for every element, in the shape of the parameter; ``keys`` are its two key words."""
    shape, device = parameter.p.shape, parameter.p.device
    if isinstance(parameter.elements, Tensor):
        return words_at(parameter.elements.to(torch.int32), keys[0], keys[1])
    first, skip = divmod(parameter.elements, _random.LANES)
    n = parameter.p.numel()
    rows = torch.arange(first, first + -(-(n + skip) // _random.LANES), dtype=torch.int32, device=device)
    row = _random.row_words(rows, keys[0], keys[1]).unsqueeze(1)
    return _random.element_words(row, _random.lane_words(device)).view(-1)[skip : skip + n].view(shape)
