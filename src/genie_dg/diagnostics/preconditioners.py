r"""The preconditioner p of an optimizer's next step, which is :math:`-p_j\,g_j` plus what does not depend on g.

Two ways to find it:

- from the optimizer's own state, for the optimizers in `READERS`: for Adam
  :math:`\alpha\frac{1-\beta_1}{1-\beta_1^t} / (\sqrt{\hat v}+\epsilon)`, for M-SVAG and
  GENIE the trust (and gate) of the two moments, for SGD the learning rate;
- from what the optimizer actually does: a copy takes the step once with the mean gradient and once with a zero
  gradient, and :math:`p_j = -(\Delta\theta_j(\bar g) - \Delta\theta_j(0)) / \bar g_j`. Momentum and weight
  decay cancel. Works for any ``torch.optim.Optimizer`` that steps without a closure.

Only ratios of p between parameters matter to the OSGR. Momentum is thus no obstacle: it scales the response to
the present gradient by the same factor everywhere.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from genie_dg._moments import GRADIENT_SIZE, NEUTRAL_LR, to_one_size
from genie_dg._moments import averaging as averaging
from genie_dg._moments import gate as gate
from genie_dg._moments import inverse_variance as inverse_variance
from genie_dg._moments import printed as printed
from genie_dg._moments import trust as trust
from genie_dg._moments import variance as variance

from ._losses import MeasurementError, Parameters, accumulator_dtype, trainable


def _sgd(group: Mapping[str, Any], state: Mapping[str, Tensor], p: Tensor) -> Tensor:
    momentum, dampening = group["momentum"], group["dampening"]
    kept = 1.0 - dampening if momentum and state.get("momentum_buffer") is not None else 1.0
    response = kept * momentum + 1.0 if group["nesterov"] and momentum else kept
    return torch.full_like(p, float(response))


def _adam(group: Mapping[str, Any], state: Mapping[str, Tensor], p: Tensor) -> Tensor:
    beta1, beta2 = (float(b) for b in group["betas"])
    step = float(state["step"])
    v = state["max_exp_avg_sq"] if group.get("amsgrad") else state["exp_avg_sq"]
    first = (1 - beta1) / (1 - float(beta1**step))
    denominator: Tensor = (v / (1 - float(beta2**step))).sqrt() + float(group["eps"])
    return first / denominator


def _msvag(group: Mapping[str, Any], state: Mapping[str, Tensor], p: Tensor) -> Tensor:
    a = averaging(float(group["beta"]), float(group["step"]))
    mean = state["exp_avg"] * a.inverse_correction
    spread = ((state["exp_avg_sq"] * a.inverse_correction - mean.square()) * a.inverse_freedom).clamp(min=0)
    square = mean.square()
    factor = torch.where(square == 0, 0.0, square / (square + a.rho * spread))
    return factor * a.weight * a.inverse_correction


def _genie(group: Mapping[str, Any], state: Mapping[str, Tensor], p: Tensor) -> Tensor:
    """On average over mask and noise."""
    a = averaging(float(group["beta"]), float(state["step"]))
    wide = accumulator_dtype(p.dtype)
    m, v = state["exp_avg"].to(wide), state["exp_avg_sq"].to(wide)
    response = torch.ones_like(m) * a.weight * a.inverse_correction  # of the momentum to the present gradient
    if group["scale_free"]:
        power = float(group["beta"]) ** float(state["step"])
        longer = float(state["distance"]) / NEUTRAL_LR / GRADIENT_SIZE
        response = response * to_one_size(state["grad_size"].to(wide), power) * longer
    if not group["precondition"]:
        return response
    mean = m * a.inverse_correction
    s2 = variance(v, mean, a)
    if group["formulation"] == "theorem":
        return response * inverse_variance(s2, s2.mean())
    if group["formulation"] == "released":
        return response * trust(mean.square(), s2, a.rho) * gate(s2)
    response = response * (1 - float(group["dropout"]))  # the mask of this formulation is not rescaled
    _, gated, trusted = printed(m, v, a)
    return response * gated * trusted


Reader = Callable[[Mapping[str, Any], Mapping[str, Tensor], Tensor], Tensor]
READERS: dict[str, tuple[Reader, bool]] = {
    "SGD": (_sgd, False),
    "Adam": (_adam, True),
    "AdamW": (_adam, True),
    "MSVAG": (_msvag, True),
    "GENIE": (_genie, True),
}
"""By class name: how p / lr is read from a group and a state, and whether a state is needed."""


def reader_of(optimizer: Optimizer) -> tuple[Reader, bool] | None:
    """The entry of `READERS` for an optimizer's class or the nearest of its parents."""
    return next((READERS[c.__name__] for c in type(optimizer).__mro__ if c.__name__ in READERS), None)


def preconditioner(optimizer: Optimizer, model: nn.Module, *, gradient: Parameters | None = None) -> Parameters:
    """The preconditioner of an optimizer as it stands now; nothing is changed.

    Args:
        optimizer: any ``torch.optim.Optimizer`` over parameters of ``model``. The state is read where a reader
            exists for its class; otherwise steps are taken on a copy.
        model: gives the parameters their names. Parameters that the optimizer does not hold get p = 0.
        gradient: the mean gradient by name, needed when p comes from the actual update.

    Example:
        >>> line = torch.nn.Linear(1, 1, bias=False)
        >>> preconditioner(torch.optim.SGD(line.parameters(), lr=0.5), line)["weight"].item()
        0.5
    """
    reader = reader_of(optimizer)
    return from_update(optimizer, model, gradient) if reader is None else _from_state(optimizer, model, *reader)


def _from_state(optimizer: Optimizer, model: nn.Module, read: Reader, needs_state: bool) -> Parameters:
    parameters = trainable(model)
    values = {name: torch.zeros_like(p, dtype=accumulator_dtype(p.dtype)) for name, p in parameters.items()}
    names = {id(p): name for name, p in parameters.items()}
    seen = False
    with torch.no_grad():
        for group in optimizer.param_groups:
            for p in group["params"]:
                state = optimizer.state.get(p, {})
                if id(p) not in names or (needs_state and not state):
                    continue
                seen = True
                name = names[id(p)]
                values[name] = read(group, state, p.detach()).to(values[name].dtype) * float(group["lr"])
    if not seen:
        raise MeasurementError(
            f"{type(optimizer).__name__} has no state for the weights of this model; take a step first."
        )
    return values


def copy_of(model: nn.Module, optimizer: Optimizer) -> tuple[nn.Module, Optimizer]:
    """Both, copied together so that the copied optimizer steps the copied model.

    An ``Optimizer`` is copied without its own attributes (those of L-BFGS and of many others), so they are
    copied here; all but ``step``, which is one only where a scheduler has wrapped it. Hooks stay behind.
    """
    memo: dict[int, Any] = {}
    try:
        copied, stepper = copy.deepcopy((model, optimizer), memo)
        for name, value in vars(optimizer).items():
            if name not in vars(stepper) and name != "step":
                vars(stepper)[name] = copy.deepcopy(value, memo)
    except Exception as error:
        raise MeasurementError(
            f"{type(model).__name__} with {type(optimizer).__name__} cannot be copied ({error}), and a step is "
            "only ever taken on a copy; give a model and an optimizer that copy.deepcopy accepts."
        ) from error
    return copied, stepper


def from_update(optimizer: Optimizer, model: nn.Module, gradient: Parameters | None) -> Parameters:
    """P from what a copy of the optimizer does with the gradient and without one."""
    if gradient is None:
        raise MeasurementError(
            f"p of {type(optimizer).__name__} comes from its actual update; pass gradient=moments.mean."
        )
    full = _delta(optimizer, model, gradient)
    empty = _delta(optimizer, model, {name: torch.zeros_like(g) for name, g in gradient.items()})
    values = {}
    for name, g in gradient.items():
        response = empty[name] - full[name]
        values[name] = torch.where(g == 0, 0.0, response / torch.where(g == 0, 1.0, g))
    return values


def _delta(optimizer: Optimizer, model: nn.Module, gradient: Parameters) -> Parameters:
    """How a copy of the model moves when its optimizer steps with a given gradient."""
    copied, stepper = copy_of(model, optimizer)
    parameters = trainable(copied)
    before = {name: p.detach().clone() for name, p in parameters.items()}
    for name, p in parameters.items():
        p.grad = gradient[name].to(p.dtype).clone()
    stepper.step()
    return {name: p.detach().to(accumulator_dtype(p.dtype)) - before[name] for name, p in parameters.items()}
