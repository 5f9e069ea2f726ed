"""The rules against the optimizers themselves: the same preconditioner, and the same next step."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, Optimizer

from genie_dg import GENIE
from genie_dg.diagnostics import MeasurementError, preconditioner
from genie_dg.diagnostics.rules import RULES, GradientHistory, flatten
from tests.diagnostics.models import loss, mlp

STEPS = 7
QUIET: dict[str, Any] = {"lr": 0.05, "noise": False, "dropout": 0.0}
MAKE: dict[str, Callable[[Any], Optimizer]] = {
    "SGD": lambda p: SGD(p, lr=0.05),
    "averaged gradient": lambda p: GENIE(p, precondition=False, **QUIET),
    "Adam": lambda p: Adam(p, lr=0.01),
    "released": lambda p: GENIE(p, **QUIET),
    "algorithm1": lambda p: GENIE(p, formulation="algorithm1", **QUIET),
    "eq. 5": lambda p: GENIE(p, formulation="theorem", **QUIET),
}


def trained(name: str) -> tuple[nn.Module, Optimizer, GradientHistory, tuple[Tensor, Tensor]]:
    """A few steps on changing batches, with the history beside them."""
    model, (x, y) = mlp()
    optimizer, history = MAKE[name](model.parameters()), GradientHistory(model)
    for step in range(STEPS):
        rows = torch.arange(step, step + 5) % len(x)
        optimizer.zero_grad()
        loss(model.eval(), x[rows], y[rows]).backward()
        optimizer.step()
        history.add()
    return model, optimizer, history, (x, y)


def weights(model: nn.Module) -> Tensor:
    return flatten([p for p in model.parameters() if p.requires_grad])


@pytest.mark.parametrize("name", MAKE)
def test_the_preconditioner_is_that_of_the_optimizer_up_to_a_factor(name: str) -> None:
    model, optimizer, history, _ = trained(name)
    theirs = flatten(list(preconditioner(optimizer, model).values.values()))
    ours = history.preconditioner(name)
    torch.testing.assert_close(ours / ours.sum(), theirs / theirs.sum(), rtol=1e-6, atol=1e-14)


@pytest.mark.parametrize("name", MAKE)
def test_the_direction_is_the_next_step_of_the_optimizer(name: str) -> None:
    """For two gradients at once; each optimizer steps a copy."""
    model, optimizer, history, (x, y) = trained(name)
    gradients, moved = [], []
    for rows in (slice(0, 4), slice(6, 12)):
        copied, stepper = copy.deepcopy((model, optimizer))
        stepper.zero_grad()
        loss(copied, x[rows], y[rows]).backward()
        gradients.append(
            flatten(
                [
                    torch.zeros_like(p) if p.grad is None else p.grad
                    for p in copied.parameters()
                    if p.requires_grad
                ]
            )
        )
        before = weights(copied)
        stepper.step()
        moved.append((before - weights(copied)) / optimizer.param_groups[0]["lr"])
    torch.testing.assert_close(
        history.directions(name, torch.stack(gradients)), torch.stack(moved), rtol=1e-6, atol=1e-10
    )


def test_trust_is_the_released_rule_without_its_gate() -> None:
    *_, history, _ = trained("released")
    plain, gated = history.preconditioner("trust"), history.preconditioner("released")
    torch.testing.assert_close(plain, gated)  # all variances are below 0.1 here, where the gate is open
    rows = 40 * torch.randn(3, plain.numel(), generator=torch.Generator().manual_seed(0), dtype=plain.dtype)
    steps = [history.directions(name, rows).abs().sum() for name in ("trust", "released")]
    assert steps[1] < 0.5 * steps[0]  # gradients of size 40 have variances that close it


def test_looking_changes_nothing() -> None:
    *_, history, _ = trained("Adam")
    before = {name: history.preconditioner(name) for name in RULES}
    history.directions("Adam", torch.ones(1, sum(history.sizes), dtype=torch.float64))
    for name, p in before.items():
        assert torch.equal(p, history.preconditioner(name))
    assert history.steps == STEPS


def test_an_empty_history_is_refused() -> None:
    with pytest.raises(MeasurementError, match="holds no gradient, so that no rule has a step; call add"):
        GradientHistory(nn.Linear(2, 2)).preconditioner("SGD")
