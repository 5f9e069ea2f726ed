"""GENIE's options: what they may be, and the rule and the numbers of a step that follow from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from genie_dg._moments import GRADIENT_SIZE, NEUTRAL_LR, Scalar, averaging
from genie_dg._options import OptionError as OptionError
from genie_dg._options import UpdateRule, check_options

from ._update import Scalars

_SWITCHES = ("noise", "precondition", "scale_free", "decoupled_weight_decay", "maximize", "capturable")
_PATHS = ("foreach", "fused")


def check_group(group: dict[str, Any]) -> None:
    """Raise, in a whole sentence, for the first option of a parameter group that cannot be."""
    numbers = {name: x for name, x in group.items() if not (name == "lr" and isinstance(x, Tensor))}
    if "lr" not in numbers and group["lr"].numel() != 1:  # its value would be waited for, so it is not read
        raise OptionError(f"got a Tensor lr with {group['lr'].numel()} elements; expected one element.")
    switches = [*_SWITCHES, *(name for name in _PATHS if group[name] is not None)]
    check_options(numbers, switches, ("released", "algorithm1", "theorem"))
    if group["foreach"] and group["fused"]:
        raise OptionError("got foreach=True and fused=True, which are two paths; expected at most one of them.")
    for p in group.get("params", ()):
        check_parameter(p)


def check_loaded_groups(groups: Sequence[dict[str, Any]]) -> None:
    """Raise for groups that another optimizer has saved."""
    for group in groups:
        if not {"beta", "dropout"} <= group.keys():
            names = ", ".join(name for name in group if name not in ("params", "param_names"))
            raise OptionError(
                f"got the state of another optimizer, with {names}; expected a state that GENIE has saved, "
                "because its moments and its lr mean something else: build GENIE anew and choose its own lr."
            )


def check_parameter(p: Tensor) -> None:
    """Real and of floating point."""
    if p.is_complex():
        raise OptionError(
            f"got a complex parameter ({p.dtype}); expected real parameters, so pass torch.view_as_real(p)."
        )
    if not p.is_floating_point():
        raise OptionError(f"got a parameter of {p.dtype}; expected floating-point parameters.")


def rule_of(group: dict[str, Any]) -> UpdateRule:
    """The switches of a parameter group."""
    return UpdateRule.of(group, mask=group["dropout"] > 0, decay=group["weight_decay"] != 0)


def shared_scalars(group: dict[str, Any], steps: list[int | Tensor], distance: Scalar) -> list[Scalars]:
    """The scalars of each parameter; parameters of the same age share them."""
    ages = [i if isinstance(t, Tensor) else t for i, t in enumerate(steps)]
    scalars = {age: scalars_of(group, t, distance) for age, t in dict(zip(ages, steps, strict=True)).items()}
    return [scalars[age] for age in ages]


def scalars_of(group: dict[str, Any], step: int | Tensor, distance: Scalar) -> Scalars:
    """The numbers of step t of a parameter group; the distance counts where it is ``scale_free``."""
    lr = group["lr"]
    if isinstance(step, Tensor):
        step = step.to(torch.float64) if step.device.type != "mps" else step
    elif isinstance(lr, Tensor):
        lr = lr.item()
    if isinstance(lr, Tensor):
        lr = lr.reshape(())
    rescale = 1 - group["dropout"] if group["formulation"] != "algorithm1" else 1.0
    decay, unit = group["weight_decay"], 1.0
    if group["scale_free"]:
        lr, unit = lr / NEUTRAL_LR * distance, GRADIENT_SIZE
    return Scalars(
        averaging(group["beta"], step), lr / unit / rescale, 1 - lr * decay, decay, group["noise_std"]
    )
