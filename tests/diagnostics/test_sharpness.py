"""Sharpness against closed forms on quadratics and against plain loops on three networks."""

from __future__ import annotations

import copy
import doctest
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from genie_dg.diagnostics import MeasurementError, sharpness
from genie_dg.diagnostics.sharpness import first_order_flatness, loss_rise
from tests.diagnostics.models import CASES, Case, loss

RADIUS = 0.3


# -- closed forms: L(w) = w' H w / 2 ---


class Bowl(nn.Module):
    """Weights in two tensors, around a frozen centre."""

    def __init__(self, start: Tensor) -> None:
        super().__init__()
        self.a = nn.Parameter(start[:2].clone())
        self.b = nn.Parameter(start[2:].reshape(-1, 1).clone())

    def vector(self) -> Tensor:
        return torch.cat([self.a, self.b.flatten()])


def quadratic(model: nn.Module, hessians: Tensor) -> Tensor:
    w = model.vector()
    return (hessians @ w @ w).mean() / 2


def bowl(start: Tensor, eigenvalues: list[float]) -> tuple[Bowl, Tensor]:
    """The model at ``start`` and a batch of two matrices whose mean has the given eigenvalues."""
    generator = torch.Generator().manual_seed(7)
    turn, _ = torch.linalg.qr(torch.randn(5, 5, dtype=torch.float64, generator=generator))
    hessian = turn @ torch.diag(torch.tensor(eigenvalues, dtype=torch.float64)) @ turn.T
    return Bowl(start), torch.stack([hessian * 0.5, hessian * 1.5])


START = torch.tensor([0.5, -1.0, 2.0, 0.3, -0.7], dtype=torch.float64)
EIGENVALUES = [0.5, 1.0, 2.0, 3.0, 8.0]


@pytest.mark.parametrize("radius", [1e-3, 0.3, 5.0])
def test_gradient_direction_on_a_quadratic(radius: float) -> None:
    model, hessians = bowl(START, EIGENVALUES)
    hessian = hessians.mean(0)
    g = hessian @ START
    norm = g.norm().item()
    expected = radius * norm + 0.5 * radius**2 * (g @ hessian @ g).item() / norm**2
    result = loss_rise(model, quadratic, (hessians,), radius)
    assert result.value == pytest.approx(expected, rel=1e-9)
    assert result.highest == result.value
    assert result.gradient_norm == pytest.approx(norm)
    assert result.loss == pytest.approx((START @ hessian @ START).item() / 2)
    assert (result.radius, result.direction) == (radius, "gradient")


@pytest.mark.parametrize("radius", [1e-3, 0.3, 5.0])
def test_at_the_minimum_the_ball_maximum_follows_the_largest_eigenvalue(radius: float) -> None:
    model, hessians = bowl(torch.zeros(5, dtype=torch.float64), EIGENVALUES)
    rise = loss_rise(model, quadratic, (hessians,), radius, direction="ascent", steps=60)
    assert rise.value == pytest.approx(radius**2 * 8.0 / 2, rel=1e-9)
    flat = first_order_flatness(model, quadratic, (hessians,), radius, steps=60)
    assert flat.value == pytest.approx(radius * 8.0 * radius, rel=1e-9)
    assert flat.steepest == pytest.approx(8.0 * radius, rel=1e-9)
    assert flat.gradient_norm == 0.0


def test_the_ball_maximum_away_from_the_minimum() -> None:
    """The largest |H(w+e)| and the largest rise over the ball, from the secular equation by bisection."""
    model, hessians = bowl(START, EIGENVALUES)
    values, vectors = torch.linalg.eigh(hessians.mean(0))
    w = vectors.T @ START

    def farthest(curvature: Tensor) -> Tensor:
        """The e of length RADIUS that maximises sum curvature (w+e)^2: e = curvature w / (m - curvature)."""
        low, high = curvature.max().item(), curvature.max().item() + 1e6
        for _ in range(300):
            middle = (low + high) / 2
            too_long = (curvature * w / (middle - curvature)).norm().item() > RADIUS
            low, high = (middle, high) if too_long else (low, middle)
        return curvature * w / (high - curvature)

    rise = (values * (w + farthest(values)).square()).sum() / 2 - (values * w.square()).sum() / 2
    steepest = (values * (w + farthest(values**2))).norm()
    result = loss_rise(model, quadratic, (hessians,), RADIUS, direction="ascent", steps=100)
    assert result.value == pytest.approx(rise.item(), rel=1e-9)
    flat = first_order_flatness(model, quadratic, (hessians,), RADIUS, steps=100)
    assert flat.value == pytest.approx(RADIUS * steepest.item(), rel=1e-9)


def test_ascent_finds_an_interior_maximum() -> None:
    """The top of a hill lies inside the ball: full steps overshoot and must be shortened."""
    model, hessians = bowl(START, [-1.0, -2.0, -2.0, -3.0, -1.0])
    result = loss_rise(model, quadratic, (hessians,), 10.0, direction="ascent", steps=200)
    assert result.value == pytest.approx(-result.loss, rel=1e-6)
    assert loss_rise(model, quadratic, (hessians,), 10.0).value < 0


def test_random_mean_on_a_quadratic() -> None:
    """E[e' H e] = radius^2 trace(H) / n on the sphere; no draw beats the largest eigenvalue."""
    model, hessians = bowl(torch.zeros(5, dtype=torch.float64), EIGENVALUES)
    result = loss_rise(model, quadratic, (hessians,), 0.5, direction="random", draws=1000)
    assert result.value == pytest.approx(0.25 * sum(EIGENVALUES) / 5 / 2, rel=0.05)
    assert result.value < result.highest <= 0.25 * 8.0 / 2
    assert result.highest > 0.25 * 8.0 / 2 * 0.95


# -- slow twins on the networks: copied models, plain autograd, float64 ---


def trainable(model: nn.Module) -> list[nn.Parameter]:
    return [p for p in model.parameters() if p.requires_grad]


def moved(model: nn.Module, flat: Tensor) -> nn.Module:
    """A copy of the model in eval mode whose trainable weights are moved by a flat vector."""
    twin = copy.deepcopy(model).eval()
    start = 0
    with torch.no_grad():
        for p in trainable(twin):
            p += flat[start : start + p.numel()].reshape(p.shape)
            start += p.numel()
    assert start == flat.numel()
    return twin


def flat_gradient(model: nn.Module, data: tuple[Tensor, ...]) -> Tensor:
    """By backward(), with parameters that no sample reaches counted as zero."""
    model.zero_grad()
    loss(model, *data).backward()
    return torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in trainable(model)])


def twin_loss(case: Case, flat: Tensor) -> float:
    return loss(moved(case.model, flat), *case.data).item()


def count(case: Case) -> int:
    return sum(p.numel() for p in trainable(case.model))


def here(case: Case) -> Tensor:
    return torch.zeros(count(case), dtype=torch.float64)


@pytest.fixture(params=list(CASES))
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]()


def test_gradient_direction_matches_its_twin(case: Case) -> None:
    g = flat_gradient(moved(case.model, here(case)), case.data)
    expected = twin_loss(case, RADIUS * g / g.norm()) - twin_loss(case, here(case))
    result = loss_rise(case.model, loss, case.data, RADIUS)
    assert result.value == pytest.approx(expected, rel=1e-9)
    assert result.gradient_norm == pytest.approx(g.norm().item(), rel=1e-9)
    assert result.loss == pytest.approx(twin_loss(case, here(case)), rel=1e-12)


def test_random_directions_match_their_twin(case: Case) -> None:
    generator = torch.Generator().manual_seed(5)
    rises = []
    for _ in range(4):
        pieces = [torch.randn(p.shape, generator=generator, dtype=torch.float64) for p in trainable(case.model)]
        u = torch.cat([piece.flatten() for piece in pieces])
        rises.append(twin_loss(case, RADIUS * u / u.norm()) - twin_loss(case, here(case)))
    result = loss_rise(case.model, loss, case.data, RADIUS, direction="random", draws=4, seed=5)
    assert result.value == pytest.approx(sum(rises) / 4, rel=1e-9)
    assert result.highest == pytest.approx(max(rises), rel=1e-9)


def twin_ascent(height: Callable[[Tensor], tuple[float, Tensor]], start: Tensor, steps: int) -> float:
    """The rule of the docstring, written out for one flat vector."""
    e, length = start, 2 * RADIUS
    best, slope = height(e)
    for _ in range(steps):
        trial = e + length * slope / slope.norm()
        if trial.norm() > RADIUS:
            trial = RADIUS * trial / trial.norm()
        value, slope_there = height(trial)
        if value > best:
            e, best, slope, length = trial, value, slope_there, min(2 * length, 8 * RADIUS)
        else:
            length = length / 2
    return best


def test_ascent_matches_its_twin_and_beats_the_other_directions(case: Case) -> None:
    def height(e: Tensor) -> tuple[float, Tensor]:
        return twin_loss(case, e), flat_gradient(moved(case.model, e), case.data)

    expected = twin_ascent(height, here(case), 12) - twin_loss(case, here(case))
    result = loss_rise(case.model, loss, case.data, RADIUS, direction="ascent", steps=12)
    assert result.value == pytest.approx(expected, rel=1e-7)
    assert result.value > loss_rise(case.model, loss, case.data, RADIUS).value
    assert result.value > loss_rise(case.model, loss, case.data, RADIUS, direction="random").highest


def test_flatness_matches_its_twin(case: Case) -> None:
    """The twin takes its Hessian-vector product from central differences of gradients."""

    def height(e: Tensor) -> tuple[float, Tensor]:
        g = flat_gradient(moved(case.model, e), case.data)
        small = 1e-5 * g / g.norm()
        ahead = flat_gradient(moved(case.model, e + small), case.data)
        behind = flat_gradient(moved(case.model, e - small), case.data)
        return g.norm().item(), (ahead - behind) / 2e-5

    expected = RADIUS * twin_ascent(height, here(case), 8)
    result = first_order_flatness(case.model, loss, case.data, RADIUS, steps=8)
    assert result.value == pytest.approx(expected, rel=1e-6)
    assert result.value > RADIUS * result.gradient_norm * 1.01


def test_fused_attention_kernels_do_not_matter() -> None:
    """The fused kernel has no second derivative, and may be chosen where gradients are recorded."""

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q = nn.Linear(4, 4).double()

        def forward(self, x: Tensor) -> Tensor:
            q = self.q(x)
            return nn.functional.scaled_dot_product_attention(q, q, q)

    def square(model: nn.Module, x: Tensor) -> Tensor:
        out: Tensor = model(x).square().mean()
        return out

    torch.manual_seed(0)
    result = first_order_flatness(Attention(), square, (torch.randn(3, 2, 6, 4).double(),), 0.1)
    assert result.value > 0.1 * result.gradient_norm


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_narrow_weights_agree_with_wide_ones(dtype: torch.dtype) -> None:
    narrow = CASES["mlp"](dtype)
    wide = Case(copy.deepcopy(narrow.model).double(), (narrow.data[0].double(), narrow.data[1]))
    for direction in ("gradient", "ascent", "random"):
        a = loss_rise(wide.model, loss, wide.data, 0.5, direction=direction, steps=6)  # type: ignore[arg-type]
        b = loss_rise(narrow.model, loss, narrow.data, 0.5, direction=direction, steps=6)  # type: ignore[arg-type]
        scale = 1e-3 if dtype == torch.float32 else 0.5
        assert a.value != b.value
        assert abs(a.value - b.value) < scale * abs(a.highest) + 1e-5


def test_a_tiny_gradient_has_a_direction() -> None:
    """Radius over norm is beyond float32 here."""
    model = nn.ParameterList([torch.tensor([1.0, 2.0])])

    def faint(model: Any, x: Tensor) -> Tensor:
        return (model[0] * x * 1e-41).sum()

    assert loss_rise(model, faint, (torch.tensor([3.0, 4.0]),), 1.0).value == pytest.approx(5e-41, rel=1e-3)


# -- what cannot be measured ---


def far_wall(model: Any, x: Tensor) -> Tensor:
    """Finite at the weights, infinite a little farther out."""
    return (x / (1 - model.vector().sum().clamp(max=1.0)) ** 2).sum()


BAD: list[tuple[dict[str, Any], str]] = [
    ({"radius": 0.0}, r"got radius=0.0; expected a number above 0"),
    ({"steps": 0}, r"got steps=0; expected a whole number"),
    ({"mode": "evla"}, r"got mode='evla'; expected eval, dropout or train; did you mean 'eval'\?$"),
    ({"loss": lambda model, x: model.vector() * x}, r"returned shape \(5,\)"),
    ({"loss": lambda model, x: model.vector().sum() + math.nan}, r"is nan, not finite, at the weights"),
    ({"loss": far_wall, "radius": 10.0}, r"is inf, not finite, at a point of the ball; shrink radius"),
    ({"loss": lambda model, x: x.sum()}, r"does not depend on any of the 2 trainable tensors"),
]


@pytest.mark.parametrize("measure", [loss_rise, first_order_flatness])
@pytest.mark.parametrize(("change", "sentence"), BAD)
def test_what_is_refused(measure: Callable[..., Any], change: dict[str, Any], sentence: str) -> None:
    model, _ = bowl(torch.zeros(5, dtype=torch.float64), EIGENVALUES)
    request = {"loss": quadratic, "batch": (torch.ones(1, dtype=torch.float64),), "radius": 0.1, **change}
    with pytest.raises(MeasurementError, match=sentence) as caught:
        measure(model, **request)
    assert str(caught.value).endswith((".", "?"))
    assert ". " not in str(caught.value)


def test_what_only_loss_rise_refuses() -> None:
    model, hessians = bowl(torch.zeros(5, dtype=torch.float64), EIGENVALUES)
    with pytest.raises(MeasurementError, match="The gradient is exactly zero"):
        loss_rise(model, quadratic, (hessians,), 0.1)
    with pytest.raises(MeasurementError, match="got direction='up'; expected gradient, ascent or random"):
        loss_rise(model, quadratic, (hessians,), 0.1, direction="up")  # type: ignore[arg-type]
    with pytest.raises(MeasurementError, match="got draws=True; expected a whole number"):
        loss_rise(model, quadratic, (hessians,), 0.1, direction="random", draws=True)


def test_docstring_examples() -> None:
    failed, tried = doctest.testmod(sharpness, extraglobs={"torch": torch})
    assert (failed, tried > 6) == (0, True)
