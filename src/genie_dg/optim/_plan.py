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
from ._shards import is_sharded, local, local_gradient, shard_of
from ._target import Target
from ._update import Rule, Scalars


def uses_plan(group: dict[str, Any]) -> bool:
    """False for the readable loop: ``foreach=False`` without ``fused=True``."""
    return bool(group["fused"]) or group["foreach"] is not False


def targets_of(
    params: list[Tensor], averages: list[Tensor], squares: list[Tensor], numbers: list[int]
) -> list[Target]:
    """The parameters and their moments as plain local tensors."""
    targets = []
    for p, m, v, number in zip(params, averages, squares, numbers, strict=True):
        shard = shard_of(p)
        tensors = (local(p.detach()), local(m), local(v))
        targets.append(Target(*tensors, number, p.numel(), shard.place, shard.reduce))
    return targets


class Situation(NamedTuple):
    """Everything a plan depends on. Tensors count by identity and by where their memory is."""

    options: tuple[Any, ...]
    numbers: list[int]
    ages: list[int]  # step counts, relative to the first
    tensors: list[Tensor]  # parameters, then first moments, then second moments
    addresses: list[int]

    @staticmethod
    def of(group: dict[str, Any], tensors: list[Tensor], numbers: list[int], steps: list[Any]) -> Situation:
        # counts on the device are not read: every parameter may then be of another age
        ages = [i if isinstance(t, Tensor) else t - steps[0] for i, t in enumerate(steps)]
        addresses = (
            [local(t).data_ptr() for t in tensors] if _any_sharded() else [t.data_ptr() for t in tensors]
        )
        return Situation(_options(group), numbers, ages, tensors, addresses)

    def same_as(self, other: Situation) -> bool:
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


def _any_sharded() -> bool:
    return "torch.distributed.tensor" in sys.modules


class GroupPlan:
    """One plan per device and dtype of a parameter group."""

    def __init__(self, group: dict[str, Any], rule: Rule, situation: Situation) -> None:
        self.situation = situation
        n = len(situation.numbers)
        self._params, averages, squares = (situation.tensors[i * n : (i + 1) * n] for i in range(3))
        self._homes = targets_of(self._params, averages, squares, situation.numbers)
        self._away = [t if t.in_order else t.put_in_order() for t in self._homes]
        self._sharded = any(is_sharded(p) for p in self._params)
        threshold = _random.drop_threshold(group["dropout"])
        path = FusedPlan if group["fused"] else ForeachPlan
        buckets: dict[tuple[torch.device, torch.dtype, bool], list[int]] = {}
        for i, target in enumerate(self._homes):
            p = target.p
            split = p.device.type == "cpu" and p.dtype == torch.float32 and target.reduce is None
            buckets.setdefault((p.device, p.dtype, split and not group["capturable"]), []).append(i)
        self._parts: list[tuple[list[int], ForeachPlan | FusedPlan]] = []
        for (_, _, split), members in buckets.items():
            chosen, ages = [self._away[i] for i in members], [situation.ages[i] for i in members]
            self._parts.append((members, path(rule, chosen, ages, group["seed"], threshold, split)))

    @property
    def keeps(self) -> bool:
        """False if the plan holds copies, which would take memory between steps."""
        return all(away is home for home, away in zip(self._homes, self._away, strict=True))

    def run(self, grads: list[Tensor], scalars: list[Scalars], steps: list[int | Tensor]) -> None:
        """One step of the whole group."""
        if self._sharded:
            grads = [local_gradient(p, g) for p, g in zip(self._params, grads, strict=True)]
        for members, plan in self._parts:
            plan.run([grads[i] for i in members], [scalars[i] for i in members], [steps[i] for i in members])
        for home, away in zip(self._homes, self._away, strict=True):
            if away is not home:
                home.bring_home(away)
