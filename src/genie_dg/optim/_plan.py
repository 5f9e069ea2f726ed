"""What all paths but the loop prepare once for a parameter group and use until something changes."""

from __future__ import annotations

import operator
import sys
from typing import Any, NamedTuple

import torch
from torch import Tensor

from genie_dg import _random

from ._foreach import ForeachPlan
from ._fused import FusedPlan
from ._local import LocalParameter, local, local_parameters
from ._native import NativePlan, can_serve, can_serve_in_place, library
from ._update import Rule, Scalars, step_loop

_PLAIN = (Tensor, torch.nn.Parameter)  # surely not sharded


class PlanInputs(NamedTuple):
    """Everything a plan depends on. Tensors count by identity and by where their memory is."""

    options: tuple[Any, ...]
    numbers: list[int]
    ages: list[int]  # step counts, relative to the first
    tensors: list[Tensor]  # parameters, then first moments, then second moments
    addresses: list[int]
    layouts: tuple[list[Any], ...]  # sizes, strides, dtypes, devices

    @staticmethod
    def of(group: dict[str, Any], tensors: list[Tensor], numbers: list[int], steps: list[Any]) -> PlanInputs:
        # counts on the device are not read: every parameter may then be of another age
        ages = [i if isinstance(t, Tensor) else t - steps[0] for i, t in enumerate(steps)]
        any_sharded = "torch.distributed.tensor" in sys.modules
        own = [t if type(t) in _PLAIN else local(t) for t in tensors] if any_sharded else tensors
        addresses = [t.data_ptr() for t in own]
        shapes, strides = [t.shape for t in own], [t.stride() for t in own]
        layouts = (shapes, strides, [t.dtype for t in own], [t.device for t in own])
        return PlanInputs(_options(group), numbers, ages, tensors, addresses, layouts)

    def same_as(self, other: PlanInputs) -> bool:
        return (
            self.options == other.options
            and self.numbers == other.numbers
            and self.ages == other.ages
            and self.addresses == other.addresses
            and self.layouts == other.layouts
            and all(map(operator.is_, self.tensors, other.tensors))
        )


def _options(group: dict[str, Any]) -> tuple[Any, ...]:
    names = ("formulation", "precondition", "noise", "dropout", "maximize", "decoupled_weight_decay")
    switches = tuple(group[name] for name in names)
    paths = (group["foreach"], group["fused"], group["capturable"])
    return (*switches, group["weight_decay"] != 0, *paths, group["seed"])


def _path(group: dict[str, Any], parameter: LocalParameter, split: bool) -> str:
    """The path of one parameter: as the group says, and native where it says nothing and that can be had."""
    if group["fused"]:
        return "fused"
    free = group["foreach"] is None and group["fused"] is None
    native = free and split and can_serve(parameter) and library() is not None
    return "native" if native else "foreach"


def overlapping(parameters: list[LocalParameter]) -> set[int]:
    """Positions of the parameters whose memory, or that of their moments, another one may write to as well."""
    ranges = []
    for i, parameter in enumerate(parameters):
        for t in parameter[:3]:
            start = t.data_ptr()
            reach = sum((n - 1) * stride for n, stride in zip(t.shape, t.stride(), strict=True))
            if t.numel() and start:
                ranges.append((start, start + (reach + 1) * t.element_size(), i))
    shared: set[int] = set()
    last, owner = 0, -1
    for start, stop, i in sorted(ranges):
        if start < last:
            shared |= {i, owner}
        if stop > last:
            last, owner = stop, i
    return shared


class LoopPlan:
    """The loop, for parameters that share memory: one after the other, in index order."""

    def __init__(self, rule: Rule, parameters: list[LocalParameter], seed: int, threshold: int) -> None:
        self._rule, self._parameters, self._seed, self._threshold = rule, parameters, seed, threshold

    def run(self, grads: list[Tensor], scalars: list[Scalars], steps: list[int | Tensor]) -> None:
        """One step."""
        step_loop(self._rule, self._parameters, grads, scalars, steps, self._seed, self._threshold)


class GroupPlan:
    """One plan per device and dtype of a parameter group, and one for the parameters that share memory."""

    def __init__(self, group: dict[str, Any], rule: Rule, inputs: PlanInputs) -> None:
        self.inputs = inputs
        n = len(inputs.numbers)
        params, averages, squares = (inputs.tensors[i * n : (i + 1) * n] for i in range(3))
        self._parameters = local_parameters(params, averages, squares, inputs.numbers)
        self._flat = list(self._parameters)
        threshold = _random.drop_threshold(group["dropout"])
        shared = overlapping(self._parameters)
        buckets: dict[tuple[torch.device | None, torch.dtype | None, bool, str], list[int]] = {}
        for i, parameter in enumerate(self._parameters):
            p = parameter.p
            if i in shared:
                buckets.setdefault((None, None, False, "loop"), []).append(i)
                continue
            split = p.device.type == "cpu" and p.dtype == torch.float32 and parameter.reduce is None
            split = split and not group["capturable"]
            path = _path(group, parameter, split)
            if not (parameter.is_contiguous or (path == "native" and can_serve_in_place(parameter))):
                self._flat[i] = parameter.flat_copy()
            buckets.setdefault((p.device, p.dtype, split, path), []).append(i)
        self._parts: list[tuple[list[int], LoopPlan | ForeachPlan | FusedPlan | NativePlan]] = []
        for (_, _, split, path), members in buckets.items():
            chosen, ages = [self._flat[i] for i in members], [inputs.ages[i] for i in members]
            if path == "loop":
                self._parts.append((members, LoopPlan(rule, chosen, group["seed"], threshold)))
            elif path == "native":
                self._parts.append((members, NativePlan(rule, chosen, ages, group["seed"], threshold)))
            else:
                plan = FusedPlan if path == "fused" else ForeachPlan
                self._parts.append((members, plan(rule, chosen, ages, group["seed"], threshold, split)))

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
        for members, plan in self._parts:
            plan.run([grads[i] for i in members], [scalars[i] for i in members], [steps[i] for i in members])
        for own, flat in zip(self._parameters, self._flat, strict=True):
            if flat is not own:
                own.copy_from(flat)
