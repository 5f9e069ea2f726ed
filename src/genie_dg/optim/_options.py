"""What GENIE's options may be, and the sentence a user gets when one is not."""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor

FORMULATIONS = ("released", "algorithm1")

_OTHER_NAMES = {
    "betas": "beta",
    "moving_avg": "beta",
    "momentum": "beta",
    "convergence_rate": "lr",
    "learning_rate": "lr",
    "p": "dropout",
    "generator": "seed",
}
_NOT_HERE = {
    "eps": "GENIE has no eps: the floor of its denominators is fixed at 1e-8.",
    "amsgrad": "GENIE has no AMSGrad form.",
    "differentiable": "GENIE cannot be differentiated through; use differentiable=False.",
}


def refuse_unknown(unknown: dict[str, Any], allowed: Sequence[str]) -> None:
    """Raise for the first keyword that GENIE does not have, and name the nearest one that it has."""
    for name, value in unknown.items():
        if name == "differentiable" and not value:
            continue
        near = _OTHER_NAMES.get(name) or next(iter(difflib.get_close_matches(name, allowed, 1)), None)
        advice = _NOT_HERE.get(name) or (f"Did you mean {near!r}?" if near else "")
        raise TypeError(
            f"GENIE got the unknown keyword {name!r}; it takes {', '.join(allowed)}. {advice}".rstrip()
        )


def check_group(group: dict[str, Any]) -> None:
    """Raise a ValueError or TypeError, in a whole sentence, for the first option that cannot be."""
    _check_lr(group["lr"])
    _check_number("beta", group["beta"], 0.0, 1.0, "the decay of the moving averages")
    _check_number("dropout", group["dropout"], 0.0, 1.0, "the probability of leaving an entry out")
    for name in ("noise_std", "weight_decay"):
        _check_number(name, group[name], 0.0, math.inf, "a scale")
    if group["formulation"] not in FORMULATIONS:
        near = difflib.get_close_matches(str(group["formulation"]), FORMULATIONS, 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(
            f"GENIE got formulation={group['formulation']!r}; "
            f"it must be one of {', '.join(map(repr, FORMULATIONS))}.{hint}"
        )
    if isinstance(group["seed"], bool) or not isinstance(group["seed"], int):
        raise TypeError(f"GENIE got seed={group['seed']!r}; it must be a whole number.")
    if group["foreach"] and group["fused"]:
        raise ValueError("GENIE got foreach=True and fused=True; they are two paths, so set at most one.")
    for p in group.get("params", ()):
        if p.is_complex():
            raise ValueError(
                f"GENIE got a complex parameter ({p.dtype}); it needs real ones, so pass torch.view_as_real(p)."
            )
        if not p.is_floating_point():
            raise ValueError(f"GENIE got a parameter of {p.dtype}; it needs floating-point parameters.")


def _check_lr(lr: Any) -> None:
    if isinstance(lr, Tensor):
        if lr.numel() != 1:
            raise ValueError(
                f"GENIE got a Tensor lr with {lr.numel()} elements; a Tensor lr must have one element."
            )
        return  # reading its value would wait for the device
    _check_number("lr", lr, 0.0, math.inf, "the step size")


def _check_number(name: str, value: Any, low: float, high: float, what: str) -> None:
    span = f"in [{low:g}, {high:g})" if high < math.inf else f"finite and at least {low:g}"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"GENIE got {name}={value!r}; {name} is {what} and must be a number {span}.")
    if not low <= value < high:
        raise ValueError(f"GENIE got {name}={value!r}; {name} is {what} and must be {span}.")
