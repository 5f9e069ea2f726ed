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
_Parts = list[tuple[dict[str, Any], Tensor, StepParts, Scalars]]
"""The group, the local weights, and the parts and numbers of the last step of each parameter with a state."""

_DEAD, _EXPLODING = 8e-5, 0.3
"""Relative steps below which the fastest matrix, and above which all weights together, were not seen to learn
within a few hundred steps: see ``docs/learning_rate.md``."""

_HUGE = 1e4
"""A root mean square of the weights that no network has."""

_LOOKS = (25, 50)
"""The steps at which `Alarm` looks: by then weights that only drift have outgrown their steps."""


def _parts(groups: _Groups, state: _State) -> _Parts:
    result: _Parts = []
    for group in groups:
        rule = rule_of(group)
        for p in group["params"]:
            own = state.get(p)
            if not own or local(p).numel() == 0:
                continue
            scalars = scalars_of(group, int(own["step"].item()), float(own.get("distance", NEAR)))
            m, v = local(own["exp_avg"]), local(own["exp_avg_sq"])
            typical = kappa_of(gate_sums(rule, m, v, scalars)) if rule.formulation == "theorem" else 0.0
            result.append((group, local(p), direction(rule, m, v, scalars, typical), scalars))
    return result


def _moved(part: tuple[dict[str, Any], Tensor, StepParts, Scalars]) -> float:
    """The sum of the squares of the update, mask included and noise not."""
    group, _, d, s = part
    return _square_sum(d.step) * float(s.size) ** 2 * float(1 - group["dropout"])


def _relative_step(parts: _Parts) -> float:
    """0 where nothing moves, infinite where weights of 0 do."""
    moved, weighed = sum(map(_moved, parts)), sum(_square_sum(p) for _, p, _, _ in parts)
    return 0.0 if moved == 0 else (moved / weighed) ** 0.5 if weighed else math.inf


def _fastest(parts: _Parts) -> float:
    """The largest relative step of a matrix: a new head moves although pretrained weights below hardly do."""
    matrices = [(part, _square_sum(part[1])) for part in parts if part[1].dim() > 1]
    return max(((_moved(part) / size) ** 0.5 for part, size in matrices if size > 0), default=math.inf)


def _square_sum(x: Tensor) -> float:
    return float(torch.linalg.vector_norm(x if x.device.type == "mps" else x.double())) ** 2


def _size(groups: _Groups) -> float:
    """The root mean square of the weights."""
    weights = [local(p) for group in groups for p in group["params"]]
    total: float = sum(_square_sum(p) for p in weights)
    return math.sqrt(total / max(sum(p.numel() for p in weights), 1))


@torch.no_grad()
def gauges_of(groups: _Groups, state: _State) -> dict[str, float]:
    """See `GENIE.gauges`."""
    parts = _parts(groups, state)
    count = sum(p.numel() for _, p, _, _ in parts)
    if count == 0:
        return dict.fromkeys(["trust", "live", "relative_step"], math.nan)
    trusted = sum(float(d.trust.sum(dtype=torch.float64)) for _, _, d, _ in parts)
    live = sum(int((d.s2 > CALM).sum()) for _, _, d, _ in parts)
    return {"trust": trusted / count, "live": live / count, "relative_step": _relative_step(parts)}


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
    def look(self, groups: _Groups, state: _State) -> None:
        """After a step."""
        if self._silent or torch.compiler.is_compiling() or any(group["capturable"] for group in groups):
            return
        first = next((state[p] for group in groups for p in group["params"] if p in state), None)
        step = int(first["step"].item()) if first else 0
        self._silent = step >= _LOOKS[-1]
        if step not in _LOOKS:
            return
        parts, size = _parts(groups, state), _size(groups)
        relative, fastest = _relative_step(parts), _fastest(parts)
        fast = relative > _EXPLODING and size > 10 * self._before
        huge = size > _HUGE and size > 1000 * self._before
        scale_free = any(group["scale_free"] for group in groups)  # whose steps grow by themselves
        if fast or huge or not math.isfinite(size):
            what = f"the weights have size {size:.1g} and move by {relative:.1g} of it"
            fate, way = "the loss to explode", "smaller"
        elif step == _LOOKS[-1] and not scale_free and 0 < fastest * _rise(groups) < _DEAD:
            what = f"no matrix of weights moves by more than {fastest:.1g} of its size"
            fate, way = "nothing to be learned within hundreds of steps", "larger"
        else:
            return
        self._silent = True
        relief = "" if scale_free else ", or set scale_free=True"
        warnings.warn(
            f"GENIE: at step {step} {what} a step; expect {fate}. Take an lr {way} than "
            f"{float(groups[0]['lr']):.3g}, ask genie_dg.optim.suggest_lr for one{relief}.",
            stacklevel=3,
        )


def _rise(groups: _Groups) -> float:
    """How many times larger the rate is that a scheduler started from, which is where warm-ups end."""
    rates = [(float({"initial_lr": g["lr"], **g}["initial_lr"]), float(g["lr"])) for g in groups]
    return max(1.0, *(top / now if now > 0 else math.inf for top, now in rates))
