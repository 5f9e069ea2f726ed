"""The compiled path: one kernel with a dynamic one-dimensional shape, called once per large tensor.

The kernel reads and writes parameter and moments once, draws mask and noise itself and allocates nothing
of the tensor's size. It is compiled on the first use of a rule (some seconds, cached by torch on disk);
the numbers of a step come in two small tensors, so no schedule ever compiles it again. Tensors of a few
thousand elements cost more to call than to compute: they are packed and go through `_foreach`.
"""

from __future__ import annotations

import functools
import itertools
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ._foreach import finish_shards, flatten, step_foreach, write_back
from ._target import Target, stream_keys
from ._update import Draw, Rule, Scalars, advance, compute_dtype, finish, gate_sums, kappa_of

SMALL = 8192
"""Tensors of at most this many elements may be packed instead of being given a kernel call each."""

PACK_SHARE = 1 / 256
"""... as long as all packed elements together are at most this share of the parameters, and"""

PACK_FROM = 12
"""... there are at least this many of them: gathering and scattering costs as much as a few calls."""

_WARM_UP = 1 << 17
_number = itertools.count()


def _draw(n: int, words: Tensor, device: torch.device) -> Draw:
    index = torch.arange(n, dtype=torch.int32, device=device) + words[3]
    return Draw(index, words[0], words[1], words[2])


def _scalars(values: Tensor) -> Scalars:
    return Scalars.from_flat(values.unbind(0))


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a private copy of a function: torch counts recompilations per code object."""
    code = function.__code__.replace(co_name=f"{function.__name__}_{next(_number)}")
    copy = types.FunctionType(
        code, function.__globals__, code.co_name, function.__defaults__, function.__closure__
    )
    return torch.compile(copy, dynamic=True, fullgraph=True)


class Kernels:
    """The compiled stages for one rule, dtype and device."""

    def __init__(self, rule: Rule, split: bool) -> None:
        def stage_advance(p: Tensor, g: Tensor, m: Tensor, v: Tensor, values: Tensor, words: Tensor) -> Tensor:
            draw = _draw(p.numel(), words, p.device)
            new_p, new_m, new_v, live = advance(rule, p, g, m, v, _scalars(values), draw, split)
            m.copy_(new_m)
            v.copy_(new_v)
            if split:
                p.copy_(new_p)
            return live

        def stage_sums(m: Tensor, v: Tensor, values: Tensor) -> Tensor:
            return gate_sums(rule, m, v, _scalars(values))

        def stage_finish(p: Tensor, m: Tensor, v: Tensor, values: Tensor, words: Tensor, kappa: Tensor) -> None:
            draw = _draw(p.numel(), words, p.device)
            p.copy_(finish(rule, p, m, v, _scalars(values), kappa, draw, split))

        self._stages: dict[str, tuple[Callable[..., Any], int]] = {
            "advance": (stage_advance, 4),
            "sums": (stage_sums, 2),
            "finish": (stage_finish, 3),
        }
        self._ready: dict[str, Callable[..., Any]] = {}

    def call(self, stage: str, *tensors: Tensor) -> Any:
        """Run a stage. It is compiled on a large dummy first, so that the code is always parallel."""
        if stage not in self._ready:
            function, shaped = self._stages[stage]
            compiled = _compiled(function)
            compiled(*(t.new_zeros(_WARM_UP) for t in tensors[:shaped]), *tensors[shaped:])
            self._ready[stage] = compiled
        return self._ready[stage](*tensors)


@functools.lru_cache(maxsize=64)
def kernels_for(rule: Rule, split: bool, dtype: torch.dtype, device: torch.device) -> Kernels:
    return Kernels(rule, split)


def partition(targets: list[Target]) -> tuple[list[int], list[int]]:
    """Positions of the targets that get a kernel call each, and of those that are packed.

    Only whole sizes count, so that the ranks of a sharded network agree.
    """
    room = PACK_SHARE * sum(target.whole for target in targets)
    alone, packed = [], []
    for i in sorted(range(len(targets)), key=lambda i: targets[i].whole):
        size = targets[i].whole
        if must_be_packed(targets[i]) or (size <= SMALL and size <= room):
            packed.append(i)
            room -= size
        else:
            alone.append(i)
    if len(packed) < PACK_FROM:
        must_pack = {i for i in packed if must_be_packed(targets[i])}
        alone += [i for i in packed if i not in must_pack]
        packed = sorted(must_pack)
    return sorted(alone), sorted(packed)


def must_be_packed(target: Target) -> bool:
    """The kernel is compiled for two elements or more in index order."""
    return target.whole < 2 or isinstance(target.place, Tensor)


def step_fused(
    rule: Rule, targets: list[Target], steps: list[int | Tensor], seed: int, threshold: int, split: bool
) -> None:
    """Update every target in place. All targets are on one device and have one dtype."""
    alone, packed = partition(targets)
    if packed:
        step_foreach(rule, [targets[i] for i in packed], [steps[i] for i in packed], seed, threshold, split)
    if not alone:
        return
    chosen = [targets[i] for i in alone]
    device, dtype = chosen[0].p.device, chosen[0].p.dtype
    kernels = kernels_for(rule, split, dtype, device)
    runs = [(k, run) for k, target in enumerate(chosen) for run in target.runs()]
    keys = stream_keys(seed, [run for _, run in runs], [steps[alone[k]] for k, _ in runs], device)
    extra = [[threshold] * len(runs), [run.low for _, run in runs]]
    words = torch.cat((keys, torch.tensor(extra, dtype=torch.int32, device=device))).t().contiguous().unbind(0)
    flats = [flatten(target) for target in chosen]
    values = _values(chosen, compute_dtype(dtype), device)

    live: set[int] = set()
    for (k, run), word in zip(runs, words, strict=True):
        parts = [t[run.start : run.stop] if run.stop - run.start != t.numel() else t for t in flats[k]]
        count = kernels.call("advance", *parts, values[k], word)
        if not split or count.item() > 0:
            live.add(k)
    wanted = sorted(live)
    if wanted or not split:
        kappas = torch.zeros(len(chosen), dtype=compute_dtype(dtype), device=device)
        if rule.needs_kappa:
            sums = kappas.new_zeros(len(chosen), 2)
            for k in wanted:
                sums[k] = kernels.call("sums", flats[k].m, flats[k].v, values[k])
            kappas = kappa_of(finish_shards(rule, chosen, sums))
        for (k, run), word in zip(runs, words, strict=True):
            if k in live:
                p, m, v = (flats[k][f][run.start : run.stop] for f in (0, 2, 3))
                kernels.call("finish", p, m, v, values[k], word, kappas[k])
    for target, flat in zip(chosen, flats, strict=True):
        write_back(target, flat)


def _values(targets: list[Target], dtype: torch.dtype, device: torch.device) -> list[Tensor]:
    """The scalars of each target as a tensor; targets that share them share the tensor."""
    made: dict[int, Tensor] = {}
    for target in targets:
        if id(target.scalars) not in made:
            numbers = target.scalars.flat()
            if any(isinstance(x, Tensor) for x in numbers):
                made[id(target.scalars)] = torch.stack(
                    [torch.as_tensor(x, dtype=dtype, device=device) for x in numbers]
                )
            else:
                made[id(target.scalars)] = torch.tensor(numbers, dtype=dtype, device=device)
    return [made[id(target.scalars)] for target in targets]
