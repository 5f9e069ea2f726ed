"""What all paths but the loop prepare once for a parameter group and use until something changes."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from genie_dg import _random
from genie_dg._options import UpdateRule

from ._device import DevicePlan
from ._local import LocalParameter, local, local_parameters
from ._native import NativePlan, can_serve, can_serve_in_place, library
from ._update import Randomness, Scalars, step_loop

_PLAIN = (Tensor, torch.nn.Parameter)  # surely not sharded
_OPTIONS = ("formulation", "precondition", "noise", "dropout", "maximize", "decoupled_weight_decay")
_PATHS = ("foreach", "fused", "capturable", "seed")

_Run: TypeAlias = "Callable[[list[Tensor], list[Scalars], list[int | Tensor]], None]"
"""One step: gradients, scalars and step counts of some parameters."""


class PlanInputs(NamedTuple):
    """Everything a plan depends on. Tensors count by identity and by where their memory is."""

    options: tuple[Any, ...]
    numbers: list[int]
    ages: list[int]  # step counts, relative to the first
    addresses: list[int]
    layouts: tuple[list[Any], ...]  # sizes, strides, dtypes, devices
    tensors: list[Tensor]  # parameters, then first moments, then second moments

    @staticmethod
    def of(group: dict[str, Any], tensors: list[Tensor], numbers: list[int], steps: list[Any]) -> PlanInputs:
        # counts on the device are not read: every parameter may then be of another age
        ages = [i if isinstance(t, Tensor) else t - steps[0] for i, t in enumerate(steps)]
        any_sharded = "torch.distributed.tensor" in sys.modules
        own = [t if type(t) in _PLAIN else local(t) for t in tensors] if any_sharded else tensors
        shapes, strides = [t.shape for t in own], [t.stride() for t in own]
        layouts = (shapes, strides, [t.dtype for t in own], [t.device for t in own])
        options = (group["weight_decay"] != 0, *(group[name] for name in (*_OPTIONS, *_PATHS)))
        return PlanInputs(options, numbers, ages, [t.data_ptr() for t in own], layouts, tensors)

    def same_as(self, other: PlanInputs) -> bool:
        return self[:-1] == other[:-1] and all(map(operator.is_, self.tensors, other.tensors))


class _Bucket(NamedTuple):
    """What parameters that are stepped together have in common."""

    path: str
    device: torch.device | None = None
    dtype: torch.dtype | None = None
    split: bool = False  # see `_device`


class GroupPlan:
    """One plan per device and dtype of a parameter group, and the loop for shards of scattered elements."""

    def __init__(self, group: dict[str, Any], rule: UpdateRule, inputs: PlanInputs) -> None:
        self.inputs = inputs
        n = len(inputs.numbers)
        params, averages, squares = (inputs.tensors[i * n : (i + 1) * n] for i in range(3))
        self._parameters = local_parameters(params, averages, squares, inputs.numbers)
        self._flat = list(self._parameters)
        buckets: dict[_Bucket, list[int]] = {}
        for i, parameter in enumerate(self._parameters):
            bucket = _bucket(group, parameter)
            in_place = bucket.path == "loop" or (bucket.path == "native" and can_serve_in_place(parameter))
            if not (parameter.is_contiguous or in_place):
                self._flat[i] = parameter.flat_copy()
            buckets.setdefault(bucket, []).append(i)
        randomness = Randomness(group["seed"], _random.drop_threshold(group["dropout"]))
        self._parts: list[tuple[list[int], _Run]] = []
        for bucket, members in buckets.items():
            chosen, ages = [self._flat[i] for i in members], [inputs.ages[i] for i in members]
            if bucket.path == "loop":
                run: _Run = partial(step_loop, rule, chosen, randomness=randomness)
            elif bucket.path == "native":
                run = NativePlan(rule, chosen, ages, randomness).run
            else:
                run = DevicePlan(rule, chosen, ages, randomness, bucket.split, bucket.path == "fused").run
            self._parts.append((members, run))

    @property
    def reusable(self) -> bool:
        """False if the plan holds copies, which would take memory between steps."""
        return all(flat is own for own, flat in zip(self._parameters, self._flat, strict=True))

    def run(self, grads: list[Tensor], scalars: list[Scalars], steps: list[int | Tensor]) -> None:
        """One step of the whole group.

        Args:
            grads: local ones.
            scalars: of each parameter.
            steps: of each parameter.
        """
        for members, run in self._parts:
            run([grads[i] for i in members], [scalars[i] for i in members], [steps[i] for i in members])
        for own, flat in zip(self._parameters, self._flat, strict=True):
            if flat is not own:
                own.copy_from(flat)


def _bucket(group: dict[str, Any], parameter: LocalParameter) -> _Bucket:
    """The path is what the group says, and native where it says nothing and that can be had."""
    p = parameter.p
    if isinstance(parameter.elements, Tensor):
        return _Bucket("loop")
    split = p.device.type == "cpu" and p.dtype == torch.float32 and parameter.reduce is None
    split = split and not group["capturable"] and not group["fused"]
    native = group["foreach"] is None and group["fused"] is None and split and can_serve(parameter)
    path = "fused" if group["fused"] else "native" if native and library() is not None else "foreach"
    return _Bucket(path, p.device, p.dtype, split)
