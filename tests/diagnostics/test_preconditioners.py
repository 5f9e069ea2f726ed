"""p read from an optimizer's state is what its step really does; p from the update is the response to a
gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from pytorch_optimizer import MSVAG
from torch import Tensor, nn

from genie_dg import GENIE
from genie_dg.diagnostics import MeasurementError, preconditioner
from genie_dg.diagnostics.preconditioners import from_update
from tests.diagnostics.models import loss, mlp

Make = Callable[[Any], torch.optim.Optimizer]

# For each optimizer: how it is built, and the first moment whose product with p is the step (1 - beta divided
# out).
WITH_MOMENTUM: dict[str, tuple[Make, float]] = {
    "Adam": (lambda ps: torch.optim.Adam(ps, lr=0.02, betas=(0.8, 0.95)), 0.2),
    "Adam amsgrad": (lambda ps: torch.optim.Adam(ps, lr=0.02, amsgrad=True), 0.1),
    "AdamW": (lambda ps: torch.optim.AdamW(ps, lr=0.02, weight_decay=0.0), 0.1),
    "MSVAG": (lambda ps: MSVAG(ps, lr=0.1, beta=0.8), 0.2),
    "GENIE": (lambda ps: GENIE(ps, lr=0.1, beta=0.9, noise=False, dropout=0.0), 0.1),
    "GENIE momentum": (
        lambda ps: GENIE(ps, lr=0.1, beta=0.9, precondition=False, noise=False, dropout=0.0),
        0.1,
    ),
    "GENIE algorithm1": (
        lambda ps: GENIE(ps, formulation="algorithm1", lr=0.1, noise=False, dropout=0.0),
        0.05,
    ),
    "GENIE theorem": (lambda ps: GENIE(ps, formulation="theorem", lr=0.1, dropout=0.0), 0.05),
}
WITHOUT_MOMENTUM: dict[str, Make] = {
    "SGD": lambda ps: torch.optim.SGD(ps, lr=0.3),
}


def trained(
    make: Make, steps: int = 6
) -> tuple[nn.Module, torch.optim.Optimizer, dict[str, Tensor], dict[str, Tensor]]:
    """A model after a few steps, its last gradient and its last weight change."""
    model, (x, y) = mlp()
    model.eval()
    optimizer = make([p for p in model.parameters() if p.requires_grad])
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    for step in range(steps):
        before = {name: p.detach().clone() for name, p in named.items()}
        optimizer.zero_grad()
        loss(model, x[step::3], y[step::3]).backward()
        gradient = {name: p.grad.clone() for name, p in named.items()}
        optimizer.step()
    return model, optimizer, gradient, {name: p.detach() - before[name] for name, p in named.items()}


@pytest.mark.parametrize("name", WITH_MOMENTUM)
def test_the_last_step_is_minus_p_times_the_momentum(name: str) -> None:
    make, weight = WITH_MOMENTUM[name]
    model, optimizer, _, moved = trained(make)
    result = preconditioner(optimizer, model)
    for key, p in model.named_parameters():
        if p.requires_grad:
            momentum = optimizer.state[p]["exp_avg"] / weight
            torch.testing.assert_close(-result[key] * momentum, moved[key], rtol=1e-7, atol=1e-14)


@pytest.mark.parametrize("formulation", ["released", "theorem"])
def test_scale_free_answers_to_a_gradient_by_its_size_and_the_distance(formulation: str) -> None:
    """The momentum is that of gradients of one size: p over what brings a gradient to it is the step."""
    model, optimizer, _, moved = trained(
        lambda ps: GENIE(ps, scale_free=True, formulation=formulation, noise=False, dropout=0.0), steps=9
    )
    result = preconditioner(optimizer, model)
    for key, p in model.named_parameters():
        if p.requires_grad:
            state = optimizer.state[p]
            by = 0.01 * (1 - 0.95**9) ** 0.5 / state["grad_size"]
            expected = torch.where(state["grad_size"] > 0, -result[key] / by * state["exp_avg"] / 0.05, 0.0)
            torch.testing.assert_close(expected, moved[key], rtol=1e-6, atol=1e-14)


@pytest.mark.parametrize("name", WITHOUT_MOMENTUM)
def test_the_last_step_is_minus_p_times_the_gradient(name: str) -> None:
    model, optimizer, gradient, moved = trained(WITHOUT_MOMENTUM[name])
    result = preconditioner(optimizer, model)
    for key, g in gradient.items():
        torch.testing.assert_close(-result[key] * g, moved[key], rtol=1e-7, atol=1e-14)


@pytest.mark.parametrize(
    "options", [{"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}, {"momentum": 0.5, "dampening": 0.3}]
)
def test_from_the_update_equals_from_the_state_for_sgd(options: dict[str, Any]) -> None:
    """SGD is linear in the gradient, so both ways must agree, with momentum and weight decay in place."""
    model, optimizer, gradient, _ = trained(
        lambda ps: torch.optim.SGD(ps, lr=0.1, weight_decay=0.01, **options)
    )
    by_state = preconditioner(optimizer, model)
    by_update = from_update(optimizer, model, gradient)
    for key in by_state:
        torch.testing.assert_close(by_update[key], by_state[key], rtol=1e-6, atol=0)


class SignDescent(torch.optim.Optimizer):
    """An optimizer that nobody has heard of."""

    def __init__(self, params: Any, lr: float = 0.1) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(group["lr"] * p.grad.sign())


def test_an_unknown_optimizer_is_read_from_its_update() -> None:
    model, optimizer, gradient, _ = trained(SignDescent)
    weights = [p.detach().clone() for p in model.parameters()]
    result = preconditioner(optimizer, model, gradient=gradient)
    for key, g in gradient.items():
        torch.testing.assert_close(result[key], torch.where(g == 0, 0.0, 0.1 / g.abs()))
    assert all(torch.equal(a, b) for a, b in zip(weights, model.parameters(), strict=True))


def test_groups_have_their_own_rates_and_unheld_parameters_none() -> None:
    model, _ = mlp()
    optimizer = torch.optim.SGD(
        [{"params": [model.head.weight], "lr": 0.5}, {"params": [model.shared.weight], "lr": 0.1}]
    )
    result = preconditioner(optimizer, model)
    assert (result["head.weight"] == 0.5).all()
    assert (result["shared.weight"] == 0.1).all()
    assert (result["head.bias"] == 0).all()


def test_a_subclass_is_read_like_its_parent() -> None:
    class MyAdam(torch.optim.Adam):
        pass

    model, optimizer, _, _ = trained(lambda ps: MyAdam(ps, lr=0.01))
    assert preconditioner(optimizer, model)["head.weight"].any()


@pytest.mark.parametrize("name", ["Adam", "GENIE", "MSVAG"])
def test_an_optimizer_without_state_gets_one_sentence(name: str) -> None:
    model, _ = mlp()
    optimizer = WITH_MOMENTUM[name][0](model.parameters())
    with pytest.raises(
        MeasurementError, match=f"{name} has no state for the weights of this model; take a step"
    ):
        preconditioner(optimizer, model)


def test_a_step_on_a_copy_needs_a_gradient() -> None:
    model, optimizer, *_ = trained(SignDescent)
    with pytest.raises(MeasurementError, match="p of SignDescent comes from its actual update; pass gradient"):
        preconditioner(optimizer, model)
