"""Schedules and clipping against torch's own schedulers and norms, and runs with them that were stopped."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from genie_dg._types import MAIN, Group, Objective, StepContext
from genie_dg.bench.assemble import assemble
from genie_dg.bench.schedule import clip_gradients, lr_factor, scaled_lr
from genie_dg.bench.step import StepSettings, step_objective
from genie_dg.bench.train import take_steps, train
from genie_dg.data.domains import DomainSet
from genie_dg.optim.registry import build_optimizer
from genie_dg.runs.config import RunConfig

from .test_train import BASE, Stop, files, stop_after


def twin(schedule: str, warmup: int, steps: int) -> list[float]:
    """Torch's schedulers, one step after the other."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    parts: list[Any] = []
    if warmup > 1:
        parts.append(lr_scheduler.LinearLR(optimizer, 1 / warmup, 1.0, warmup - 1))
    left = steps - warmup
    after = {
        "cosine": lambda: lr_scheduler.CosineAnnealingLR(optimizer, left),
        "linear": lambda: lr_scheduler.LinearLR(optimizer, 1.0, 0.0, left),
        "": lambda: lr_scheduler.ConstantLR(optimizer, 1.0, 1),
    }
    parts.append(after[schedule]())
    whole = lr_scheduler.SequentialLR(optimizer, parts, [warmup]) if len(parts) > 1 else parts[0]
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        whole.step()
    return rates


@pytest.mark.filterwarnings("ignore:The epoch parameter in `scheduler.step")  # by torch, about itself
@pytest.mark.parametrize("schedule", ["", "cosine", "linear"])
@pytest.mark.parametrize(("warmup", "steps"), [(0, 1), (0, 7), (4, 13), (9, 10)])
def test_the_factor_is_that_of_torchs_schedulers(schedule: str, warmup: int, steps: int) -> None:
    ours = [lr_factor(step, schedule, warmup, steps) for step in range(steps)]
    assert ours == pytest.approx(twin(schedule, warmup, steps), rel=1e-9, abs=1e-12)
    assert all(0 < factor <= 1 for factor in ours)


@pytest.mark.parametrize("optimizer", ["adam", "sam", "genie"])
def test_a_run_with_a_schedule_is_one_whose_learning_rates_are_set_by_hand(
    optimizer: str, digits: DomainSet
) -> None:
    config = replace(BASE, optimizer=optimizer, schedule="cosine", warmup=3)
    scheduled = assemble(config, digits)
    for _ in take_steps(scheduled):
        pass
    by_hand = assemble(replace(config, schedule="", warmup=0), digits)
    (group,) = by_hand.optimizers[MAIN].param_groups
    usual = group["lr"]
    rates = [usual * (t + 1) / 3 for t in range(3)]
    rates += [usual * (1 + math.cos(math.pi * t / 6)) / 2 for t in range(6)]
    group["lr"] = rates[0]
    for step in take_steps(by_hand):
        group["lr"] = rates[min(step + 1, 8)]
    same = zip(scheduled.algorithm.parameters(), by_hand.algorithm.parameters(), strict=True)
    assert all(torch.allclose(a, b, rtol=1e-6, atol=1e-8) for a, b in same)
    assert scheduled.optimizers[MAIN].param_groups[0]["lr"] == usual


def test_factors_of_groups_and_restarts_stay(digits: DomainSet) -> None:
    parameters = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
    optimizer = build_optimizer("sgd", [Group(parameters[:1]), Group(parameters[1:], 10.0)], lr=0.1)
    with scaled_lr(optimizer, 0.5):
        assert [group["lr"] for group in optimizer.param_groups] == [0.05, 0.5]
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 1.0]
    settings = {"irm_penalty_anneal_iters": 3}
    parts = assemble(replace(BASE, algorithm="IRM", algorithm_settings=settings, schedule="linear"), digits)
    for step in take_steps(parts):
        assert parts.optimizers[MAIN].param_groups[0]["lr"] == BASE.optimizer_settings["lr"]
        taken = {int(state["step"]) for state in parts.optimizers[MAIN].state.values()}
        assert taken == {step + 1 if step < 3 else step - 2}  # dropped once, at step 3


@pytest.mark.parametrize("most", [0.0, 0.5, 1e6])
def test_clipping_is_that_of_the_whole_gradient_in_float64(most: float) -> None:
    torch.manual_seed(0)
    parameters = [nn.Parameter(torch.zeros(n)) for n in (3, 1, 40)]
    for p in parameters[:2]:
        p.grad = torch.randn_like(p)
    before = [p.grad.double() for p in parameters[:2] if p.grad is not None]
    norm = torch.cat(before).norm().item()
    clip_gradients(torch.optim.SGD(parameters), most)
    factor = min(1.0, most / norm) if most else 1.0
    after = [p.grad.double() for p in parameters[:2] if p.grad is not None]
    assert torch.allclose(torch.cat(after), factor * torch.cat(before), rtol=1e-6)
    assert parameters[2].grad is None


@pytest.mark.parametrize("precision", [None, torch.float16])
@pytest.mark.parametrize("optimizer", ["sgd", "sam"])
def test_the_gradient_that_a_step_is_taken_with_is_clipped(optimizer: str, precision: Any) -> None:
    weight = nn.Parameter(torch.tensor([3.0, 4.0]))
    settings = {"base": "sgd"} if optimizer == "sam" else {}
    built = build_optimizer(optimizer, [weight], lr=0.1, weight_decay=0.0, **settings)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0) if precision else None  # type: ignore[attr-defined]
    objective = Objective(MAIN, lambda: 50 * weight.square().sum())
    before = weight.detach().clone()
    step_objective(objective, built, StepContext(0), StepSettings(precision, scaler, clip=2.0))
    moved = before - weight.detach()
    assert moved.tolist() == pytest.approx([0.1 * 2 * 0.6, 0.1 * 2 * 0.8], rel=1e-4)


RESUMED: list[dict[str, Any]] = [
    {"schedule": "linear", "warmup": 3, "clip": 0.5, "precision": "float16"},
    {"clip": 0.1, "optimizer": "sam", "optimizer_settings": {}},
    {"label_smoothing": 0.1, "class_weights": "balanced", "freeze": 1},
    {"early_stop": 1, "checkpoint_every": 1, "optimizer_settings": {"lr": 0.3}},
]


@pytest.mark.parametrize("changes", RESUMED, ids=lambda changes: "-".join(changes))
def test_a_stopped_run_goes_on_bit_for_bit(changes: dict[str, Any], digits: DomainSet, tmp_path: Path) -> None:
    config: RunConfig = replace(BASE, **changes)
    records = train(assemble(config, digits), tmp_path / "whole")
    if config.early_stop:
        assert len(records) < config.steps
    for steps in (1, len(records) if config.early_stop else 6):  # the last time right before its end
        with pytest.raises(Stop):
            train(assemble(config, digits), tmp_path / "stopped", stop_after(steps))
    assert train(assemble(config, digits), tmp_path / "stopped") == records
    assert files(tmp_path / "stopped") == files(tmp_path / "whole")
