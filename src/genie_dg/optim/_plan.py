"""What the foreach and fused paths prepare once for a parameter group and use until something changes."""

from __future__ import annotations

import operator
import sys
from typing import Any, NamedTuple

import torch
from torch import Tensor

from genie_dg import _random

from ._foreach import ForeachPlan
from ._fused import FusedPlan
from ._local import is_sharded, local, local_gradient, local_parameters
from ._update import Rule, Scalars


class PlanInputs(NamedTuple):
    """Everything a plan depends on. Tensors count by identity and by where their memory is."""

    options: tuple[Any, ...]
    numbers: list[int]
    ages: list[int]  # step counts, relative to the first
    tensors: list[Tensor]  # parameters, then first moments, then second moments
    addresses: list[int]

    @staticmethod
    def of(group: dict[str, Any], tensors: list[Tensor], numbers: list[int], steps: list[Any]) -> PlanInputs:
        # counts on the device are not read: every parameter may then be of another age
        ages = [i if isinstance(t, Tensor) else t - steps[0] for i, t in enumerate(steps)]
        any_sharded = "torch.distributed.tensor" in sys.modules
        addresses = [(local(t) if any_sharded else t).data_ptr() for t in tensors]
        return PlanInputs(_options(group), numbers, ages, tensors, addresses)

    def same_as(self, other: PlanInputs) -> bool:
        return (
            self.options == other.options
            and self.numbers == other.numbers
            and self.ages == other.ages
            and self.addresses == other.addresses
            and all(map(operator.is_, self.tensors, other.tensors))
        )


def _options(group: dict[str, Any]) -> tuple[Any, ...]:
    names = ("formulation", "precondition", "noise", "dropout", "maximize", "decoupled_weight_decay")
    switches = tuple(group[name] for name in names)
    return (*switches, group["weight_decay"] != 0, group["fused"], group["capturable"], group["seed"])


class GroupPlan:
    """One plan per device and dtype of a parameter group."""

    def __init__(self, group: dict[str, Any], rule: Rule, inputs: PlanInputs) -> None:
        self.inputs = inputs
        n = len(inputs.numbers)
        self._params, averages, squares = (inputs.tensors[i * n : (i + 1) * n] for i in range(3))
        self._parameters = local_parameters(self._params, averages, squares, inputs.numbers)
        self._flat = [p if p.is_contiguous else p.flat_copy() for p in self._parameters]
        self._sharded = any(is_sharded(p) for p in self._params)
        threshold = _random.drop_threshold(group["dropout"])
        path = FusedPlan if group["fused"] else ForeachPlan
        buckets: dict[tuple[torch.device, torch.dtype, bool], list[int]] = {}
        for i, parameter in enumerate(self._parameters):
            p = parameter.p
            split = p.device.type == "cpu" and p.dtype == torch.float32 and parameter.reduce is None
            buckets.setdefault((p.device, p.dtype, split and not group["capturable"]), []).append(i)
        self._parts: list[tuple[list[int], ForeachPlan | FusedPlan]] = []
        for (_, _, split), members in buckets.items():
            chosen, ages = [self._flat[i] for i in members], [inputs.ages[i] for i in members]
            self._parts.append((members, path(rule, chosen, ages, group["seed"], threshold, split)))

    @property
    def reusable(self) -> bool:
        """False if the plan holds copies, which would take memory between steps."""
        return all(flat is own for own, flat in zip(self._parameters, self._flat, strict=True))

    def run(self, grads: list[Tensor], scalars: list[Scalars], steps: list[int | Tensor]) -> None:
        """One step of the whole group."""
        if self._sharded:
            grads = [local_gradient(p, g) for p, g in zip(self._params, grads, strict=True)]
        for members, plan in self._parts:
            plan.run([grads[i] for i in members], [scalars[i] for i in members], [steps[i] for i in members])
        for own, flat in zip(self._parameters, self._flat, strict=True):
            if flat is not own:
                own.copy_from(flat)
