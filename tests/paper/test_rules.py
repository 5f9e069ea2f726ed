"""Rules against the optimizers themselves; several preconditioners at one point against slow twins."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, Optimizer

from genie_dg import GENIE
from genie_dg.diagnostics import preconditioner
from paper import theory
from paper.rules import (
    GradientHistory,
    Half,
    SampleMoments,
    draw_gradients,
    flatten,
    sample_moments,
    step_gains,
)
from tests.diagnostics.models import loss, mlp
from tests.oracle import gradients as oracle

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
    theirs = flatten(list(preconditioner(optimizer, model).values()))
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
        named = [p for p in copied.parameters() if p.requires_grad]
        gradients.append(flatten([torch.zeros_like(p) if p.grad is None else p.grad for p in named]))
        before = weights(copied)
        stepper.step()
        moved.append((before - weights(copied)) / optimizer.param_groups[0]["lr"])
    steps = history.directions(name, torch.stack(gradients))
    torch.testing.assert_close(steps, torch.stack(moved), rtol=1e-6, atol=1e-10)


def test_trust_is_the_released_rule_without_its_gate() -> None:
    *_, history, _ = trained("released")
    plain, gated = history.preconditioner("trust"), history.preconditioner("released")
    torch.testing.assert_close(plain, gated)  # all variances are below 0.1 here, where the gate is open
    rows = 40 * torch.randn(3, plain.numel(), generator=torch.Generator().manual_seed(0), dtype=plain.dtype)
    steps = [history.directions(name, rows).abs().sum() for name in ("trust", "released")]
    assert steps[1] < 0.5 * steps[0]  # gradients of size 40 have variances that close it


def tensor(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def exact(mean: Tensor, variance: Tensor) -> SampleMoments:
    """Moments without sampling error: infinitely many samples, so to say."""
    half = Half(mean, variance, 10**15)
    return SampleMoments(half, half, half)


def test_a_preconditioner_from_elsewhere_matches_the_twin() -> None:
    model, data = mlp()
    moments = sample_moments(model, data)
    p = torch.rand(moments.whole.mean.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    top, bottom = oracle.osgr_parts(oracle.sample_gradients(model, loss, data), p.tolist(), 5)
    found = moments.gains(p, 5)
    assert (found.on_other, found.on_d) == pytest.approx((top, bottom), rel=1e-9)
    assert found.ratio == pytest.approx(top / bottom)


def test_a_preconditioner_from_moments_meets_the_other_half() -> None:
    model, (x, y) = mlp()
    rows = oracle.sample_gradients(model, loss, (x, y))
    halves = [rows[0::2], rows[1::2]]
    top = bottom = 0.0
    alive = [
        all(oracle.variance(list(c)) > 0 for c in pair)
        for pair in zip(*(zip(*h, strict=True) for h in halves), strict=True)
    ]
    for own, other in (halves, halves[::-1]):
        p = [1 / math.sqrt(oracle.mean(c) ** 2 + oracle.variance(c) / 4) if live else 0.0
             for c, live in zip(oracle.columns(own), alive, strict=True)]  # fmt: skip
        parts = oracle.osgr_parts(other, p, 4)
        top, bottom = top + parts[0], bottom + parts[1]
    found = sample_moments(model, (x, y)).gains_of(theory.PRECONDITIONERS["adam"], 4)
    assert (found.on_other, found.on_d) == pytest.approx((top, bottom), rel=1e-8)


def test_with_the_true_moments_all_forms_are_those_of_the_theory() -> None:
    mean, variance, n = tensor([2.0, 1.0, -0.3]), tensor([1.0, 3.0, 0.5]), 4
    moments = exact(mean, variance)
    for formula in theory.PRECONDITIONERS.values():
        expected = theory.osgr(mean, variance, formula, n)
        assert moments.gains_of(formula, n).ratio == pytest.approx(expected, rel=1e-12)
        assert moments.gains(formula(mean, variance, n), n).ratio == pytest.approx(expected, rel=1e-12)
    eq_5 = theory.osgr(mean, variance, theory.PRECONDITIONERS["genie"], n)
    assert moments.theorem_gains(n).ratio == pytest.approx(eq_5, rel=1e-12)


@pytest.mark.parametrize("variance", [[1.0, 3.0, 0.5], [8.0, 1.0, 0.1]])
def test_the_sign_of_the_correlation_decides_the_corollary(variance: list[float]) -> None:
    mean, n = tensor([4.0, 0.5, 0.1]), 4
    moments = exact(mean, tensor(variance))
    higher = moments.theorem_gains(n).ratio > moments.gains(torch.ones(3), n).ratio
    assert higher == (moments.gsnr_variance_correlation() < 0)
    pairs = torch.stack([mean.square() / tensor(variance), tensor(variance)])
    assert higher == (torch.cov(pairs)[0, 1] < 0)


def test_draws_are_disjoint_and_their_gains_are_those_of_real_steps() -> None:
    model, (x, y) = mlp(samples=24)
    history = GradientHistory(model)
    loss(model.eval(), x, y).backward()
    history.add()
    on_d, on_other = draw_gradients(model, (x, y), 4, seed=2)
    assert on_d.shape == on_other.shape == (3, sum(history.sizes))
    order = torch.randperm(24, generator=torch.Generator().manual_seed(2)).split(4)
    expected = [0.0, 0.0]
    for k in range(3):
        d, other = ((x[rows], y[rows]) for rows in order[2 * k : 2 * k + 2])
        copied = copy.deepcopy(model)
        make = lambda p: torch.optim.SGD(p, lr=0.5)  # noqa: E731
        _, _, linear_other, linear_d = oracle.step_on_copy(
            copied, make, make(list(copied.parameters())).state_dict(), loss, d, other
        )
        expected = [expected[0] + linear_other / 0.5, expected[1] + linear_d / 0.5]
    found = step_gains(history, "SGD", on_d, on_other)
    assert (found.on_other, found.on_d) == pytest.approx(tuple(expected), rel=1e-6)
