"""What GENIE is doing, read off its state, and the one warning when a run can hardly learn."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ._local import local
from ._options import rule_of, scalars_of
from ._scale import NEAR
from ._update import CALM, Scalars, StepParts, direction, gate_sums, kappa_of

_Groups = Sequence[dict[str, Any]]
_State = Mapping[Tensor, Any]

_DEAD, _EXPLODING = 8e-5, 0.3
"""Relative steps below which the fastest matrix, and above which all weights together, were not seen to learn
within a few hundred steps: see ``docs/learning_rate.md``."""

_HUGE = 1e4
"""A root mean square of the weights that no network has."""

_LISTENS = (25, 50)
"""The steps at which `Alarm` looks: by then weights that only drift have outgrown their steps."""


def _parts(groups: _Groups, state: _State) -> list[list[tuple[Tensor, StepParts, Scalars]]]:
    """Of each group, the local parameters that have a state, with the parts of their last step."""
    result: list[list[tuple[Tensor, StepParts, Scalars]]] = []
    for group in groups:
        rule = rule_of(group)
        result.append([])
        for p in group["params"]:
            own = state.get(p)
            if not own or local(p).numel() == 0:
                continue
            distance = float(own["distance"]) if "distance" in own else NEAR
            scalars = scalars_of(group, int(own["step"].item()), distance)
            m, v = local(own["exp_avg"]), local(own["exp_avg_sq"])
            typical = kappa_of(gate_sums(rule, m, v, scalars)) if rule.formulation == "theorem" else 0.0
            result[-1].append((local(p), direction(rule, m, v, scalars, typical), scalars))
    return result


def _moves(groups: _Groups, parts: list[list[tuple[Tensor, StepParts, Scalars]]]) -> list[tuple[float, float]]:
    """Of each group, the sums of the squares of the update, mask included and noise not, and of the weights."""
    moves = []
    for group, own in zip(groups, parts, strict=True):
        kept = 1 - group["dropout"]
        moved = sum(_square_sum(d.step) * float(s.size) ** 2 * kept for _, d, s in own)
        moves.append((moved, sum(_square_sum(p) for p, _, _ in own)))
    return moves


def _fastest(groups: _Groups, parts: list[list[tuple[Tensor, StepParts, Scalars]]]) -> float:
    """The largest relative step of a matrix: a new head moves although pretrained weights below hardly do."""
    steps = [
        (_square_sum(d.step) * (1 - group["dropout"])) ** 0.5 * float(s.size) / size
        for group, own in zip(groups, parts, strict=True)
        for p, d, s in own
        if p.dim() > 1 and (size := _square_sum(p) ** 0.5) > 0
    ]
    return max(steps, default=math.inf)


def _square_sum(x: Tensor) -> float:
    return float(torch.linalg.vector_norm(x if x.device.type == "mps" else x.double())) ** 2


def _size(groups: _Groups) -> float:
    """The root mean square of the weights."""
    weights = [local(p) for group in groups for p in group["params"]]
    total: float = sum(_square_sum(p) for p in weights)
    return math.sqrt(total / max(sum(p.numel() for p in weights), 1))


def _ratio(moves: list[tuple[float, float]]) -> float:
    """The relative step; 0 where nothing moves, infinite where weights of 0 do."""
    moved, weighed = (sum(column) for column in zip(*moves, strict=True))
    return 0.0 if moved == 0 else (moved / weighed) ** 0.5 if weighed else float("inf")


@torch.no_grad()
def gauges_of(groups: _Groups, state: _State) -> dict[str, float]:
    """See `GENIE.gauges`."""
    parts = _parts(groups, state)
    moves = _moves(groups, parts)
    steps = {"relative_step": _ratio(moves)}
    if len(moves) > 1:
        steps |= {f"relative_step/{i}": _ratio([move]) for i, move in enumerate(moves)}
    everything = [part for own in parts for part in own]
    count = sum(d.step.numel() for _, d, _ in everything)
    if count == 0:
        return dict.fromkeys(["trust", "live", "top_1_percent", *steps], float("nan"))
    trusted = sum(float(d.trust.sum(dtype=torch.float64)) for _, d, _ in everything)
    live = sum(int((d.s2 > CALM).sum()) for _, d, _ in everything)
    device = everything[0][0].device
    updates = torch.cat([(d.step.abs() * s.size).flatten().float().to(device) for _, d, s in everything])
    number, total = max(1, count // 100), float(updates.sum(dtype=torch.float64))
    top = float(updates.topk(number, sorted=False).values.sum(dtype=torch.float64))
    share = top / total if total else number / count
    return {"trust": trusted / count, "live": live / count, "top_1_percent": share, **steps}


class Alarm:
    """Warns once, within the first steps, when the weights hardly move or move by their own size.

    It looks at two of the first fifty steps, so it costs nothing later; not where the step count is on the
    device. Weights that do not move at all are somebody's intention. A schedule that warms up is judged by the
    rate that it warms up to.
    """

    def __init__(self) -> None:
        self._silent, self._before = False, math.nan

    @torch.no_grad()
    def start(self, groups: _Groups) -> None:
        """Before a step; the first time, how large the weights are. Of weights of 0 nothing can be said."""
        if math.isnan(self._before) and not torch.compiler.is_compiling():
            capturable = any(group["capturable"] for group in groups)
            self._before = math.inf if capturable else _size(groups) or math.inf

    @torch.no_grad()
    def listen(self, groups: _Groups, state: _State) -> None:
        """After a step."""
        if self._silent or torch.compiler.is_compiling() or any(group["capturable"] for group in groups):
            return
        first = next((state[p] for group in groups for p in group["params"] if p in state), None)
        step = int(first["step"].item()) if first else 0
        self._silent = step >= _LISTENS[-1]
        if step not in _LISTENS:
            return
        parts = _parts(groups, state)
        relative, size = _ratio(_moves(groups, parts)), _size(groups)
        fast = relative > _EXPLODING and size > 10 * self._before
        huge = size > _HUGE and size > 1000 * self._before
        exploding = fast or huge or not math.isfinite(size)
        dead = step == _LISTENS[-1] and 0 < _fastest(groups, parts) * _rise(groups) < _DEAD and not exploding
        dead = dead and not any(group["scale_free"] for group in groups)  # whose steps grow by themselves
        if not dead and not exploding:
            return
        self._silent = True
        relief = "" if any(group["scale_free"] for group in groups) else ", or set scale_free=True"
        if dead:
            what = f"no matrix of weights moves by more than {_fastest(groups, parts):.1g} of its size"
            fate, way = "nothing to be learned within hundreds of steps", "larger"
        else:
            what = f"the weights have size {size:.1g} and move by {relative:.1g} of it"
            fate, way = "the loss to explode", "smaller"
        warnings.warn(
            f"GENIE: at step {step} {what} a step; expect {fate}. Take an lr {way} than "
            f"{float(groups[0]['lr']):.3g}, ask genie_dg.optim.suggest_lr for one{relief}.",
            stacklevel=3,
        )


def _rise(groups: _Groups) -> float:
    """How many times larger the rate is that a scheduler started from, which is where warm-ups end."""
    rises = [1.0]
    for group in groups:
        now = float(group["lr"])
        top = float(group["initial_lr"]) if "initial_lr" in group else now
        rises.append(top / now if now > 0 else float("inf"))
    return max(rises)
