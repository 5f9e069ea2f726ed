"""The stages of the device path, compiled for one rule, dtype and device: see `_device`."""

from __future__ import annotations

import functools
import itertools
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from genie_dg import _random
from genie_dg._options import UpdateRule

from ._update import Perturbation, Scalars, advance, gate_sums, stepped

_WARM_UP = 1 << 17
_number = itertools.count()


def _perturbations(rule: UpdateRule, constants: Tensor) -> Callable[..., Perturbation]:
    """What makes the random words inside a kernel, from the words of rows and lanes."""

    def perturbation(p: Tensor, rows: Tensor, fixed: Tensor, kappa: Tensor | float) -> Perturbation:
        if not rule.needs_words:
            return Perturbation(kappa, None, 0)
        threshold, skip = fixed.unbind(0)
        lanes = constants[0].view(torch.int32)
        if p.dim() == 2:
            return Perturbation(kappa, _random.element_words(rows.unsqueeze(1), lanes), threshold)
        index = torch.arange(p.shape[0], dtype=torch.int32, device=p.device) + skip
        row = rows[(index >> (_random.LANES.bit_length() - 1)).long()]
        word = _random.element_words(row, lanes[(index & (_random.LANES - 1)).long()])
        return Perturbation(kappa, word, threshold)

    return perturbation


def _stages(rule: UpdateRule, constants: Tensor) -> dict[str, tuple[Callable[..., Any], int]]:
    """The stages of a step as functions to compile, and how many of their arguments grow with the parameter."""
    perturbation = _perturbations(rule, constants)

    def advance_stage(p: Tensor, g: Tensor, m: Tensor, v: Tensor, values: Tensor) -> None:
        # Adding zeros keeps the compiler from giving some results a loop of their own.
        g = g + constants[1] if p.dim() == 2 else g
        new_m, new_v = advance(rule, p, g, m, v, Scalars.from_flat(values.unbind(0)))
        m.copy_(new_m)
        v.copy_(new_v)

    def sums_stage(m: Tensor, v: Tensor, values: Tensor) -> Tensor:
        return gate_sums(rule, m, v, Scalars.from_flat(values.unbind(0)))

    def finish_stage(p: Tensor, m: Tensor, v: Tensor, rows: Tensor, *rest: Tensor) -> None:
        values, fixed, kappa = rest
        s, by = Scalars.from_flat(values.unbind(0)), perturbation(p, rows, fixed, kappa)
        zeros = constants[1].to(p.dtype) if p.dim() == 2 else 0.0
        p.copy_(stepped(rule, p + zeros, m + zeros, v + zeros, s, by))

    return {"advance": (advance_stage, 4), "sums": (sums_stage, 2), "finish": (finish_stage, 4)}


class Kernels:
    """The compiled stages for one rule, dtype and device."""

    def __init__(self, rule: UpdateRule, device: torch.device) -> None:
        lanes = _random.lane_words(device).view(torch.float32)  # int32 vectors load slowly on CPU
        self._stages = _stages(rule, torch.stack((lanes, torch.zeros_like(lanes))))
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
        # torch counts recompilations per code object, so each compilation gets a copy of its own
        code = function.__code__.replace(co_name=f"{function.__name__}_{next(_number)}")
        copy = types.FunctionType(code, function.__globals__, code.co_name, None, function.__closure__)
        kernel: Callable[..., Any] = torch.compile(copy, fullgraph=True)
        dummies = [_dummy(t, tensors[0].dim() == 2) for t in tensors[:shaped]]
        kernel(*dummies, *tensors[shaped:])
        return kernel


def _dummy(like: Tensor, in_rows: bool) -> Tensor:
    """Zeros for `_WARM_UP` elements, or for the words of their rows, of which flat tensors have one more."""
    rows = max(2, _WARM_UP // _random.LANES)
    of_rows = like.dim() == 1 and like.dtype == torch.int32
    count = (rows if in_rows else rows + 1) if of_rows else rows if in_rows else _WARM_UP
    dummy = like.new_zeros(count, *like.shape[1:])
    torch._dynamo.mark_dynamic(dummy, 0)
    return dummy


@functools.lru_cache(maxsize=64)
def kernels_for(rule: UpdateRule, dtype: torch.dtype, device: torch.device) -> Kernels:
    """The kernels of a rule, which all plans share."""
    return Kernels(rule, device)
