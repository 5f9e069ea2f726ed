"""``scale_free``: the scale of the loss does not matter, in every path, after a load, on every rank."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import Parameter

from genie_dg import GENIE
from genie_dg._moments import GRADIENT_SIZE
from genie_dg.optim import _scale
from tests.oracle.genie import Twin

PATHS: dict[str, dict[str, Any]] = {
    "default": {},
    "foreach": {"foreach": True},
    "loop": {"foreach": False},
    "capturable": {"capturable": True},
    "fused": {"fused": True},
}
SHAPES = [(), (1,), (7,), (3, 5), (40, 30)]


def gradients(steps: int, dtype: torch.dtype = torch.float32) -> list[list[Tensor]]:
    generator = torch.Generator().manual_seed(3)
    sizes = [10.0**k for k in range(-3, 2)]
    return [
        [
            torch.randn(s, generator=generator, dtype=torch.float64).mul(z).to(dtype)
            for s, z in zip(SHAPES, sizes, strict=True)
        ]
        for _ in range(steps)
    ]


def weights(grads: list[list[Tensor]], by: float = 1.0, reload_at: int = -1, **options: Any) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    dtype = grads[0][0].dtype
    params = [Parameter(torch.randn(s, generator=generator).to(dtype)) for s in SHAPES]
    optimizer = GENIE(params, scale_free=True, seed=4, **options)
    for step, now in enumerate(grads):
        if step == reload_at:
            state = copy.deepcopy(optimizer.state_dict())
            optimizer = GENIE(params, scale_free=True, seed=4, **options)
            optimizer.load_state_dict(state)
        for p, g in zip(params, now, strict=True):
            p.grad = g * by
        optimizer.step()
    return [p.detach() for p in params]


@pytest.mark.parametrize("path", PATHS)
def test_every_path_is_the_loop(path: str) -> None:
    grads = gradients(6)
    for own, loop in zip(weights(grads, **PATHS[path]), weights(grads, foreach=False), strict=True):
        torch.testing.assert_close(own, loop, rtol=2e-6, atol=2e-7)


@pytest.mark.parametrize("path", ["default", "foreach", "loop"])
@pytest.mark.parametrize("by", [2.0**-20, 2.0**20])
def test_a_loss_times_a_power_of_two_gives_the_same_bits(path: str, by: float) -> None:
    grads = gradients(6)
    same = zip(weights(grads, by, **PATHS[path]), weights(grads, **PATHS[path]), strict=True)
    assert all(torch.equal(scaled, plain) for scaled, plain in same)


@pytest.mark.parametrize("by", [1e-2, 100.0, 1e-20, 1e15])
def test_the_scale_of_the_loss_does_not_matter(by: float) -> None:
    grads = gradients(6, torch.float64)
    for scaled, plain in zip(weights(grads, by), weights(grads), strict=True):
        torch.testing.assert_close(scaled, plain, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_a_resumed_run_goes_on_to_the_bit(dtype: torch.dtype) -> None:
    grads = gradients(8, dtype)
    same = zip(weights(grads, reload_at=4), weights(grads), strict=True)
    assert all(torch.equal(resumed, straight) for resumed, straight in same)


def test_the_twin_with_scaled_gradients_and_the_estimated_distance() -> None:
    """In plain Python: each gradient over its size, each step as long as the gradients say there is to go."""
    generator = torch.Generator().manual_seed(1)
    steady = torch.linspace(-1, 2, 6, dtype=torch.float64)
    grads = [(torch.randn(6, generator=generator, dtype=torch.float64) + 3 * steady) * 30 for _ in range(45)]
    p = Parameter(torch.linspace(-1, 1, 6, dtype=torch.float64))
    twin = Twin(p.tolist(), lr=0.0, mask=False, noise=False)
    optimizer = GENIE([p], lr=0.03, scale_free=True, noise=False, dropout=0.0)
    start, averages, gain, distance = p.tolist(), [0.0] * 6, 0.0, _scale.NEAR
    longest = 0.3 * math.sqrt(sum(x * x for x in start) / 6)
    for t, g in enumerate(grads, 1):
        averages = [0.95 * old + 0.05 * x * x for old, x in zip(averages, g.tolist(), strict=True)]
        sizes = [math.sqrt(average / (1 - 0.95**t)) for average in averages]
        small = [x * GRADIENT_SIZE / size for x, size in zip(g.tolist(), sizes, strict=True)]
        if t > 1:
            distance = max(distance, min(gain / sum(abs(m) for m in twin.m), longest))
        way = [was - now for was, now in zip(start, twin.theta, strict=True)]
        gain = 0.95 * gain + 0.05 * sum(x * back for x, back in zip(small, way, strict=True))
        twin.lr = 2 * distance / GRADIENT_SIZE
        twin.step(small, [0.0] * 6, [1.0] * 6)
        p.grad = g
        optimizer.step()
        assert p.tolist() == pytest.approx(twin.theta, rel=1e-12)
    assert distance == longest, "the case does not show the growth up to the longest distance"
    assert float(optimizer.state[p]["distance"]) == pytest.approx(distance, rel=1e-9)


def test_a_bad_entry_stays_where_it_is() -> None:
    p = Parameter(torch.ones(2000))
    optimizer = GENIE([p], scale_free=True)
    for _ in range(3):
        p.grad = torch.randn(2000, generator=torch.Generator().manual_seed(0))
        p.grad[7] = math.nan
        optimizer.step()
    assert torch.isnan(p).nonzero().flatten().tolist() == [7]


@pytest.mark.parametrize("size", [0.0, 1e-42, 1e-30, 1e30])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_nothing_finite_becomes_infinite(size: float, dtype: torch.dtype) -> None:
    p = Parameter(torch.ones(300, dtype=dtype))
    optimizer = GENIE([p], scale_free=True)
    for seed in range(4):
        p.grad = (
            torch.randn(300, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * size
        ).to(dtype)
        optimizer.step()
    assert torch.isfinite(p).all()
    assert size > 1e-35 or torch.equal(p, torch.ones_like(p))


def test_a_step_that_fails_leaves_the_state() -> None:
    p, q = Parameter(torch.ones(3)), Parameter(torch.ones(3))
    optimizer = GENIE([p, q], scale_free=True)
    p.grad, q.grad = torch.ones(3), torch.ones(3)
    optimizer.step()
    before = optimizer.state[p]["grad_size"].clone()
    p.grad = torch.full((3,), 5.0)
    with torch.no_grad():
        optimizer.state[q]["exp_avg"] = torch.zeros(4)
    with pytest.raises(RuntimeError, match="shape"):
        optimizer.step()
    assert torch.equal(optimizer.state[p]["grad_size"], before)
