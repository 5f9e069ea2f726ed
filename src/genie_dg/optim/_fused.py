"""The compiled path: one kernel with a dynamic number of elements, called once per large tensor.

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

from genie_dg import _random

from ._foreach import ForeachPlan, sum_shards
from ._target import Run, Target, draw_at, stream_keys
from ._update import Draw, Rule, Scalars, advance, compute_dtype, finish, gate_sums, kappa_of

SMALL = 8192
"""Tensors of at most this many elements may be packed instead of being given a kernel call each."""

PACK_SHARE = 1 / 256
"""... as long as all packed elements together are at most this share of the parameters, and"""

PACK_FROM = 12
"""... there are at least this many of them: gathering and scattering costs as much as a few calls."""

_WARM_UP = 1 << 17
_number = itertools.count()


def _rows(count: int, words: Tensor) -> Tensor:
    """The row words of a kernel. The zeros are for the compiler: reading five numbers makes it store the rows
    (a 256th of the tensor) before the main loop instead of hashing them again for every element.
    """
    key0, key1, _, low, zero, nought = words.unbind(0)
    first = low >> (_random.LANES.bit_length() - 1)
    rows = torch.arange(count, dtype=torch.int32, device=words.device) + first
    return _random.row_words(rows, key0, key1) + zero + nought


def _draw(p: Tensor, rows: Tensor, table: Tensor, words: Tensor) -> Draw:
    """The draw of a kernel: rows of lanes, or a flat tensor that starts anywhere."""
    key0, key1, threshold, low = words.unbind(0)[:4]
    lanes = table[0].view(torch.int32)  # given as float32, because int32 vectors load slowly on CPU
    if p.dim() == 2:
        return Draw(rows.unsqueeze(1), lanes, threshold)
    index = torch.arange(p.shape[0], dtype=torch.int32, device=p.device) + low
    return draw_at(index, key0, key1, threshold, lanes)


def _scalars(values: Tensor) -> Scalars:
    return Scalars.from_flat(values.unbind(0))


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a private copy of a function: torch counts recompilations per code object."""
    code = function.__code__.replace(co_name=f"{function.__name__}_{next(_number)}")
    copy = types.FunctionType(
        code, function.__globals__, code.co_name, function.__defaults__, function.__closure__
    )
    return torch.compile(copy, fullgraph=True)


class Kernels:
    """The compiled stages for one rule, dtype and device."""

    def __init__(self, rule: Rule, split: bool) -> None:
        def stage_advance(p: Tensor, g: Tensor, m: Tensor, v: Tensor, *few: Tensor) -> tuple[Tensor, Tensor]:
            values, words, table = few
            rows = _rows(p.shape[0], words) if p.dim() == 2 and rule.mask else words
            draw = _draw(p, rows, table, words)
            # Adding zeros keeps the compiler from giving some results a loop of their own.
            g = g + table[1] if p.dim() == 2 else g
            old = p + table[1] if p.dim() == 2 and not rule.mask else p
            new_p, new_m, new_v, live = advance(rule, old, g, m, v, _scalars(values), draw, split)
            m.copy_(new_m)
            v.copy_(new_v)
            if split:
                p.copy_(new_p)
            return live, rows

        def stage_sums(m: Tensor, v: Tensor, values: Tensor) -> Tensor:
            return gate_sums(rule, m, v, _scalars(values))

        def stage_finish(p: Tensor, m: Tensor, v: Tensor, *few: Tensor) -> Tensor:
            values, words, table, kappa = few
            rows = _rows(p.shape[0], words) if p.dim() == 2 else words
            draw = _draw(p, rows, table, words)
            zeros = table[1].to(p.dtype) if p.dim() == 2 else 0.0
            old = (p + zeros, m + zeros, v + zeros)
            new_p, new_v = finish(rule, *old, _scalars(values), kappa, draw, split)
            p.copy_(new_p)
            v.copy_(new_v)
            return rows

        self._stages: dict[str, tuple[Callable[..., Any], int]] = {
            "advance": (stage_advance, 4),
            "sums": (stage_sums, 2),
            "finish": (stage_finish, 3),
        }
        self._ready: dict[tuple[str, int], Callable[..., Any]] = {}

    def stage(self, name: str, *tensors: Tensor) -> Any:
        """Run a stage, compiled for flat tensors or for rows of lanes."""
        kernel = self._ready.get((name, tensors[0].dim()))
        if kernel is None:
            kernel = self._ready[name, tensors[0].dim()] = self._compile(name, tensors)
        return kernel(*tensors)

    def _compile(self, name: str, tensors: tuple[Tensor, ...]) -> Callable[..., Any]:
        """Compile on large dummies, so that the code is parallel and dynamic whatever comes first."""
        function, shaped = self._stages[name]
        kernel = _compiled(function)
        dummies = []
        for t in tensors[:shaped]:
            dummies.append(_dummy(t, _WARM_UP))
        try:
            kernel(*dummies, *tensors[shaped:])
        except Exception as error:
            raise RuntimeError(
                f"GENIE(fused=True) could not compile its kernel for {tensors[0].device}: {error} "
                "On CPU it needs a C++ compiler such as g++; without one use foreach=True."
            ) from error
        return kernel


def _dummy(like: Tensor, elements: int) -> Tensor:
    dummy = like.new_zeros(elements).view(-1, *like.shape[1:])
    torch._dynamo.mark_dynamic(dummy, 0)
    return dummy


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


def _layout(t: Tensor, run: Run) -> Tensor:
    """The elements of a run as rows of lanes, or flat if they do not fill whole rows; always a view."""
    flat = t.contiguous().view(-1)
    n, lanes = run.stop - run.start, _random.LANES
    if n >= 2 * lanes and n % lanes == 0 and run.low % lanes == 0:
        return (flat if n == flat.numel() else flat[run.start : run.stop]).view(-1, lanes)
    return flat[run.start : run.stop]


class FusedPlan:
    """The fused path for targets of one device and dtype, in index order."""

    def __init__(
        self, rule: Rule, targets: list[Target], ages: list[int], seed: int, threshold: int, split: bool
    ) -> None:
        self._rule, self._seed, self._split = rule, seed, split
        self._alone, self._packed = partition(targets)
        self._targets = [targets[i] for i in self._alone]
        device, self._dtype = targets[0].p.device, targets[0].p.dtype
        self._device = device
        self._rest: ForeachPlan | None = None
        if self._packed:
            packed, old = [targets[i] for i in self._packed], [ages[i] for i in self._packed]
            self._rest = ForeachPlan(rule, packed, old, seed, threshold, split)
        self._kernels = kernels_for(rule, split, self._dtype, device)
        self._runs = [(k, run) for k, target in enumerate(self._targets) for run in target.runs()]
        fixed = [[threshold, run.low, 0, 0] for _, run in self._runs]
        self._fixed = torch.tensor(fixed, dtype=torch.int32, device=device).reshape(-1, 4).t()
        self._views = [[_layout(t, run) for t in self._targets[k][:3]] for k, run in self._runs]
        lanes = _random.lane_words(device).view(torch.float32)
        self._table = torch.stack((lanes, torch.zeros_like(lanes)))

    def run(self, grads: list[Tensor], scalars: list[Scalars], steps: list[int | Tensor]) -> None:
        """One step. The kernels come first: if they cannot be compiled nothing has been changed."""
        if self._alone:
            mine = self._alone
            values = _values([scalars[i] for i in mine], compute_dtype(self._dtype), self._device)
            self._run_kernels([grads[i] for i in mine], values, [steps[i] for i in mine])
        if self._rest is not None:
            own = self._packed
            self._rest.run([grads[i] for i in own], [scalars[i] for i in own], [steps[i] for i in own])

    def _run_kernels(self, grads: list[Tensor], values: list[Tensor], steps: list[int | Tensor]) -> None:
        keys = stream_keys(
            self._seed, [r for _, r in self._runs], [steps[k] for k, _ in self._runs], self._device
        )
        words = torch.cat((keys, self._fixed)).t().contiguous().unbind(0)
        stage, table = self._kernels.stage, self._table
        live: set[int] = set()
        for (k, run), (p, m, v), word in zip(self._runs, self._views, words, strict=True):
            count, _ = stage("advance", p, _layout(grads[k], run), m, v, values[k], word, table)
            if not self._split or count.sum().item() > 0:
                live.add(k)
        if not live and self._split:
            return
        kappas = self._kappas(live, values)
        for (k, _), (p, m, v), word in zip(self._runs, self._views, words, strict=True):
            if k in live:
                stage("finish", p, m, v, values[k], word, table, kappas[k])

    def _kappas(self, live: set[int], values: list[Tensor]) -> Tensor:
        wide = compute_dtype(self._dtype)
        sums = torch.zeros(len(self._targets), 2, dtype=wide, device=self._device)
        if self._rule.needs_kappa:
            for (k, _), (_, m, v) in zip(self._runs, self._views, strict=True):
                if k in live:
                    sums[k] += self._kernels.stage("sums", m, v, values[k])
        return kappa_of(sum_shards(self._rule, self._targets, sums))


def _values(scalars: list[Scalars], dtype: torch.dtype, device: torch.device) -> list[Tensor]:
    """The scalars of each target as a tensor; targets that share them share the tensor."""
    made: dict[int, Tensor] = {}
    for s in scalars:
        if id(s) not in made:
            numbers = s.flat()
            if any(isinstance(x, Tensor) for x in numbers):
                parts = [torch.as_tensor(x, dtype=dtype, device=device) for x in numbers]
                made[id(s)] = torch.stack(parts)
            else:
                made[id(s)] = torch.tensor(numbers, dtype=dtype, device=device)
    return [made[id(s)] for s in scalars]
