"""Sharded parameters (FSDP2, tensor parallel): which elements are here, and who has the others."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from genie_dg import _random


@dataclass(frozen=True)
class SumOverRanks:
    """Sums a tensor over the process groups that share a parameter's shards."""

    groups: tuple[Any, ...]

    def __call__(self, x: Tensor) -> Tensor:
        x = x.clone()
        for group in self.groups:
            torch.distributed.all_reduce(x, group=group)
        return x


@dataclass(frozen=True)
class Shard:
    """What `Target` needs to know of a parameter that lives on several ranks."""

    place: int | Tensor
    reduce: Callable[[Tensor], Tensor] | None


WHOLE = Shard(0, None)


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


def shard_of(p: Tensor) -> Shard:
    """The element indices of the local shard and the ranks to sum over."""
    if not is_sharded(p):
        return WHOLE
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    mesh, placements = p.device_mesh, p.placements  # type: ignore[attr-defined]
    shape, offset = compute_local_shape_and_global_offset(p.shape, mesh, placements)
    cut = [i for i, placement in enumerate(placements) if not placement.is_replicate()]
    dims = {placements[i].dim % max(p.dim(), 1) for i in cut}
    groups = tuple(mesh.get_group(i) for i in cut)
    place: int | Tensor
    if dims <= {0}:
        place = offset[0] * math.prod(p.shape[1:]) if dims else 0
    else:
        if p.numel() >= 1 << _random.INDEX_BITS:
            raise ValueError(
                f"A parameter of shape {tuple(p.shape)} is sharded along dimension {sorted(dims)} and has "
                f"2^{_random.INDEX_BITS} elements or more; GENIE can number the elements of such a parameter "
                f"only when it is sharded along dimension 0."
            )
        place = torch.zeros((), dtype=torch.int64, device=local(p).device)
        stride = 1
        for dim in reversed(range(p.dim())):
            along = torch.arange(offset[dim], offset[dim] + shape[dim], device=place.device) * stride
            place = place + along.view(-1, *[1] * (p.dim() - dim - 1))
            stride *= p.shape[dim]
    return Shard(place, SumOverRanks(groups) if groups else None)
