"""The relative step, and the warning when a run can hardly learn."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from torch.nn import Parameter

from genie_dg import GENIE


def network() -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 3))


def train(steps: int, by: float = 1.0, **options: object) -> tuple[GENIE, float]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(64, 8, generator=generator)
    y = x[:, :3].argmax(1)
    model = network()
    optimizer = GENIE(model.parameters(), **options)  # type: ignore[arg-type]
    loss = torch.zeros(())
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        (loss * by).backward()
        optimizer.step()
    return optimizer, float(loss.detach())


def test_relative_step_is_the_update_over_the_weights() -> None:
    p, q = Parameter(torch.full((4,), 2.0)), Parameter(torch.full((4,), 3.0))
    optimizer = GENIE([{"params": [p]}, {"params": [q], "lr": 0.3}], lr=0.1, dropout=0.0)
    for _ in range(3):
        p.grad, q.grad = torch.full((4,), 0.5), torch.full((4,), 0.25)
        optimizer.step()
    gauges = optimizer.gauges()
    together = math.hypot(0.05, 0.075) / math.hypot(p[0].item(), q[0].item())
    assert gauges["relative_step"] == pytest.approx(together)


@pytest.mark.parametrize("formulation", ["released", "algorithm1", "theorem"])
def test_no_gauge_is_nan_at_rate_0(formulation: str) -> None:
    optimizer, _ = train(60, lr=0.0, formulation=formulation)
    gauges = optimizer.gauges()
    assert all(math.isfinite(value) for value in gauges.values())
    assert gauges["relative_step"] == 0


def test_a_dead_run_is_told_once() -> None:
    with pytest.warns(UserWarning, match=r"at step 50 .* nothing to be learned.* lr larger than 1e-06") as told:
        train(120, lr=1e-6)
    assert len(told) == 1


def test_a_warm_up_is_no_dead_run() -> None:
    p = Parameter(torch.ones(100))
    optimizer = GENIE([p], lr=0.1)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1e-6, total_iters=10**6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in range(60):
            p.grad = torch.randn(100, generator=torch.Generator().manual_seed(seed)) * 0.01
            optimizer.step()
            schedule.step()


@pytest.mark.parametrize("lr", [1e4, 1e30])
def test_an_exploding_run_is_told(lr: float) -> None:
    p = Parameter(torch.ones(50))
    optimizer = GENIE([p], lr=lr)

    def run() -> None:
        for _ in range(60):
            p.grad = 0.1 * p.detach()  # of a quadratic: too long a step makes it grow without end
            optimizer.step()

    with pytest.warns(UserWarning, match="explode"):
        run()


@pytest.mark.parametrize(
    "options", [{"lr": 0.3}, {"scale_free": True}, {"lr": 1.0, "formulation": "algorithm1"}]
)
def test_a_run_that_learns_is_not_warned(options: dict[str, object]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, loss = train(200, **options)  # type: ignore[arg-type]
    assert loss < 0.5 or options.get("formulation") == "algorithm1"
