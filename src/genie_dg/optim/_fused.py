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

from ._foreach import ForeachPlan
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
    gate_sums,
    kappa_of,
    wide_moments,
)

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


def _draw(p: Tensor, rows: Tensor, constants: Tensor, words: Tensor) -> Draw:
    """The draw of a kernel: rows of lanes, or a flat tensor that starts anywhere."""
    key0, key1, threshold, low = words.unbind(0)[:4]
    lanes = constants[0].view(torch.int32)  # given as float32, because int32 vectors load slowly on CPU
    if p.dim() == 2:
        return Draw(rows.unsqueeze(1), lanes, threshold)
    index = torch.arange(p.shape[0], dtype=torch.int32, device=p.device) + low
    return draw_at(index, key0, key1, threshold, lanes)


def _scalars(values: Tensor) -> Scalars:
    return Scalars.from_flat(values.unbind(0))


def advance_calm(
    rule: Rule, p: Tensor, g: Tensor, m: Tensor, v: Tensor, s: Scalars, draw: Draw
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """P with its calm entries moved, the new moments, and the number of live entries along the last dimension.

    An overflow of v is left to the next stage: such an entry is never calm.
    """
    new_m, new_v = wide_moments(rule, p, g, m, v, s)
    moments = calm_moments(rule, new_m, new_v, s)
    calm = moments.s2.abs() <= CALM
    step = calm_step(rule, moments, new_v, s)
    still = p * s.shrink if rule.shrink else p
    stepped = still - step * s.size
    if rule.mask:
        stepped = torch.where(_random.drop_mask(draw.word(), draw.threshold), still, stepped)
    return torch.where(calm, stepped, p), new_m, new_v, torch.where(calm, 0.0, 1.0).sum(-1)


def finish_live(
    rule: Rule, p: Tensor, m: Tensor, v: Tensor, s: Scalars, kappa: Tensor, draw: Draw
) -> tuple[Tensor, Tensor]:
    """P with its live entries moved as well, and v without overflow.

    Which entries are calm is decided here again, by the same arithmetic on the same stored moments.
    """
    calm = calm_moments(rule, m, v, s).s2.abs() <= CALM
    new_p = torch.where(calm, p, finish(rule, p, m, v, s, kappa, draw))
    return new_p, v.clamp(max=torch.finfo(v.dtype).max)


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
        def stage_advance(p: Tensor, g: Tensor, m: Tensor, v: Tensor, *rest: Tensor) -> tuple[Tensor, Tensor]:
            values, words, constants = rest
            rows = _rows(p.shape[0], words) if p.dim() == 2 and rule.mask else words
            # Adding zeros keeps the compiler from giving some results a loop of their own.
            g = g + constants[1] if p.dim() == 2 else g
            old = p + constants[1] if p.dim() == 2 and not rule.mask else p
            if split:
                draw = _draw(p, rows, constants, words)
                new_p, new_m, new_v, live = advance_calm(rule, old, g, m, v, _scalars(values), draw)
                p.copy_(new_p)
            else:
                new_m, new_v = advance(rule, old, g, m, v, _scalars(values))
                live = torch.ones((), device=p.device)
            m.copy_(new_m)
            v.copy_(new_v)
            return live, rows

        def stage_sums(m: Tensor, v: Tensor, values: Tensor) -> Tensor:
            return gate_sums(rule, m, v, _scalars(values))

        def stage_finish(p: Tensor, m: Tensor, v: Tensor, *rest: Tensor) -> Tensor:
            values, words, constants, kappa = rest
            rows = _rows(p.shape[0], words) if p.dim() == 2 else words
            draw = _draw(p, rows, constants, words)
            zeros = constants[1].to(p.dtype) if p.dim() == 2 else 0.0
            old = (p + zeros, m + zeros, v + zeros)
            if split:
                new_p, new_v = finish_live(rule, *old, _scalars(values), kappa, draw)
                v.copy_(new_v)
            else:
                new_p = finish(rule, *old, _scalars(values), kappa, draw)
            p.copy_(new_p)
            return rows

        self._stages: dict[str, tuple[Callable[..., Any], int]] = {
            "advance": (stage_advance, 4),
            "sums": (stage_sums, 2),
            "finish": (stage_finish, 3),
        }
        self._ready: dict[tuple[Any, ...], Callable[..., Any]] = {}

    def stage(self, name: str, *tensors: Tensor) -> Any:
        """Run a stage, compiled for flat tensors or for rows of lanes.

        What else torch compiles anew for (dtypes, the default dtype, the number of threads) is in the key,
        because torch allows a function only a few of its compilations, and some go to the sizes.
        """
        dtypes = tuple(t.dtype for t in tensors)
        key = (name, tensors[0].dim(), dtypes, torch.get_default_dtype(), torch.get_num_threads())
        kernel = self._ready.get(key)
        if kernel is None:
            kernel = self._ready[key] = self._compile(name, tensors)
        return kernel(*tensors)

    def _compile(self, name: str, tensors: tuple[Tensor, ...]) -> Callable[..., Any]:
        """Compile on large dummies, so that the code is parallel and dynamic whatever comes first."""
        function, shaped = self._stages[name]
        kernel = _compiled(function)
        dummies = [_dummy(t, _WARM_UP) for t in tensors[:shaped]]
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


def partition(parameters: list[LocalParameter]) -> tuple[list[int], list[int]]:
    """Positions of the parameters that get a kernel call each, and of those that are packed.

    Only whole sizes count, so that the ranks of a sharded network agree.
    """
    space = PACK_SHARE * sum(parameter.full_size for parameter in parameters)
    alone, packed = [], []
    for i in sorted(range(len(parameters)), key=lambda i: parameters[i].full_size):
        size = parameters[i].full_size
        if must_be_packed(parameters[i]) or (size <= SMALL and size <= space):
            packed.append(i)
            space -= size
        else:
            alone.append(i)
    if len(packed) < PACK_FROM:
        must_pack = {i for i in packed if must_be_packed(parameters[i])}
        alone += [i for i in packed if i not in must_pack]
        packed = sorted(must_pack)
    return sorted(alone), sorted(packed)


def must_be_packed(parameter: LocalParameter) -> bool:
    """The kernel is compiled for two elements or more in index order."""
    return parameter.full_size < 2 or isinstance(parameter.elements, Tensor)


def _layout(t: Tensor, stream: Stream) -> Tensor:
    """The elements of a stream as rows of lanes, or flat if they do not fill whole rows; always a view."""
    flat = t.contiguous().view(-1)
    n, lanes = stream.stop - stream.start, _random.LANES
    if n >= 2 * lanes and n % lanes == 0 and stream.low % lanes == 0:
        return (flat if n == flat.numel() else flat[stream.start : stream.stop]).view(-1, lanes)
    return flat[stream.start : stream.stop]


class FusedPlan:
    """The fused path for parameters of one device and dtype, in index order."""

    def __init__(
        self,
        rule: Rule,
        parameters: list[LocalParameter],
        ages: list[int],
        seed: int,
        threshold: int,
        split: bool,
    ) -> None:
        self._rule, self._seed, self._split = rule, seed, split
        self._alone, self._packed = partition(parameters)
        self._parameters = [parameters[i] for i in self._alone]
        device, self._dtype = parameters[0].p.device, parameters[0].p.dtype
        self._device = device
        self._rest: ForeachPlan | None = None
        if self._packed:
            packed, own = [parameters[i] for i in self._packed], [ages[i] for i in self._packed]
            self._rest = ForeachPlan(rule, packed, own, seed, threshold, split)
        self._kernels = kernels_for(rule, split, self._dtype, device)
        self._streams = [(k, stream) for k, own in enumerate(self._parameters) for stream in own.streams()]
        fixed = [[threshold, stream.low, 0, 0] for _, stream in self._streams]
        self._fixed = torch.tensor(fixed, dtype=torch.int32, device=device).reshape(-1, 4).t()
        self._views = [[_layout(t, stream) for t in self._parameters[k][:3]] for k, stream in self._streams]
        lanes = _random.lane_words(device).view(torch.float32)
        self._constants = torch.stack((lanes, torch.zeros_like(lanes)))  # lane words, zeros

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
        streams = [stream for _, stream in self._streams]
        keys = stream_keys(self._seed, streams, [steps[k] for k, _ in self._streams], self._device)
        words = torch.cat((keys, self._fixed)).t().contiguous().unbind(0)
        stage, constants = self._kernels.stage, self._constants
        live: set[int] = set()
        for (k, stream), (p, m, v), word in zip(self._streams, self._views, words, strict=True):
            g = grads[k] if grads[k].dtype == p.dtype else grads[k].to(values[k].dtype)
            count, _ = stage("advance", p, _layout(g, stream), m, v, values[k], word, constants)
            if not self._split or count.sum().item() > 0:
                live.add(k)
        if not live and self._split:
            return
        kappas = self._kappas(live, values)
        for (k, _), (p, m, v), word in zip(self._streams, self._views, words, strict=True):
            if k in live:
                stage("finish", p, m, v, values[k], word, constants, kappas[k])

    def _kappas(self, live: set[int], values: list[Tensor]) -> Tensor:
        wide = compute_dtype(self._dtype)
        sums = torch.zeros(len(self._parameters), 2, dtype=wide, device=self._device)
        if self._rule.needs_kappa:
            for (k, _), (_, m, v) in zip(self._streams, self._views, strict=True):
                if k in live:
                    sums[k] += self._kernels.stage("sums", m, v, values[k])
            sums = sum_shards([own.reduce for own in self._parameters], sums)
        return kappa_of(sums)


def _values(scalars: list[Scalars], dtype: torch.dtype, device: torch.device) -> list[Tensor]:
    """The scalars of each parameter as a tensor; parameters that share them share the tensor."""
    tensors: dict[int, Tensor] = {}
    for s in scalars:
        if id(s) not in tensors:
            numbers = s.flat()
            if any(isinstance(x, Tensor) for x in numbers):
                parts = [torch.as_tensor(x, dtype=dtype, device=device) for x in numbers]
                tensors[id(s)] = torch.stack(parts)
            else:
                tensors[id(s)] = torch.tensor(numbers, dtype=dtype, device=device)
    return [tensors[id(s)] for s in scalars]
