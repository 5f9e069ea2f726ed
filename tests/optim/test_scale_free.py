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


def test_the_published_rule_is_not_indifferent() -> None:
    grads = gradients(6)
    params = [Parameter(torch.zeros(s)) for s in SHAPES], [Parameter(torch.zeros(s)) for s in SHAPES]
    for by, own in zip((1.0, 100.0), params, strict=True):
        optimizer = GENIE(own, dropout=0.0)
        for now in grads:
            for p, g in zip(own, now, strict=True):
                p.grad = g * by
            optimizer.step()
    assert (params[1][3].norm() / params[0][3].norm()).item() > 10


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_a_resumed_run_goes_on_to_the_bit(dtype: torch.dtype) -> None:
    grads = gradients(8, dtype)
    same = zip(weights(grads, reload_at=4), weights(grads), strict=True)
    assert all(torch.equal(resumed, straight) for resumed, straight in same)


def test_the_twin_with_scaled_gradients() -> None:
    """In plain Python: each gradient over the root of the corrected average of its mean square."""
    generator = torch.Generator().manual_seed(1)
    grads = [torch.randn(6, generator=generator, dtype=torch.float64) * 30 for _ in range(7)]
    p = Parameter(torch.linspace(-1, 1, 6, dtype=torch.float64))
    twin = Twin(p.tolist(), lr=0.015 * _scale.STRIDE, mask=False, noise=False)
    optimizer = GENIE([p], scale_free=True, noise=False, dropout=0.0)
    average = 0.0
    for t, g in enumerate(grads, 1):
        average = 0.95 * average + 0.05 * sum(x * x for x in g.tolist()) / 6
        size = math.sqrt(average / (1 - 0.95**t))
        twin.step([x * _scale.SIZE / size for x in g.tolist()], [0.0] * 6, [1.0] * 6)
        p.grad = g
        optimizer.step()
        assert p.tolist() == pytest.approx(twin.theta, rel=1e-12)


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
    before = float(optimizer.state[p]["grad_size"])
    p.grad = torch.full((3,), 5.0)
    with torch.no_grad():
        optimizer.state[q]["exp_avg"] = torch.zeros(4)
    with pytest.raises(RuntimeError, match="shape"):
        optimizer.step()
    assert float(optimizer.state[p]["grad_size"]) == before


def test_it_needs_a_boolean() -> None:
    with pytest.raises(ValueError, match="scale_free"):
        GENIE([Parameter(torch.ones(1))], scale_free="yes")  # type: ignore[arg-type]
