"""Monitors: schedules, sinks, problems, and above all that a run is the same with and without them."""

from __future__ import annotations

import copy
import itertools
import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.tensorboard import SummaryWriter

from genie_dg import GENIE
from genie_dg.diagnostics import (
    MeasurementError,
    Monitor,
    every,
    log_steps,
    watch_gsnr,
    watch_osgr,
    watch_sharpness,
    watch_updates,
)
from genie_dg.diagnostics._isolation import own_randomness, undisturbed
from tests.diagnostics.models import CASES, loss, mlp


class Noisy(nn.Module):
    """Everything a measurement could disturb: dropout, batch norm, a counter, draws from three libraries."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Tanh())
        self.head = nn.Linear(8, 3)
        self.calls: torch.Tensor
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            x = x + 1e-3 * random.random() + 1e-3 * float(np.random.random_sample())
            self.calls = self.calls + 1  # replaced, not written
        out: torch.Tensor = self.head(self.body(x))
        return out


DATA = (torch.randn(64, 6, generator=torch.Generator().manual_seed(0)), torch.arange(64) % 3)
Watch = Callable[[nn.Module, torch.optim.Optimizer], Any]
WATCHES: dict[str, Watch] = {
    "gsnr": lambda model, optimizer: watch_gsnr(model, loss, DATA),
    "gsnr with dropout": lambda model, optimizer: watch_gsnr(
        model, loss, DATA, mode="dropout", seed=3, micro_batch=4
    ),
    "gsnr as in training": lambda model, optimizer: watch_gsnr(model, loss, DATA, mode="train", micro_batch=8),
    "osgr": lambda model, optimizer: watch_osgr(model, optimizer, loss, DATA, 8),
    "osgr as in training": lambda model, optimizer: watch_osgr(model, optimizer, loss, DATA, 8, mode="train"),
    "updates": lambda model, optimizer: watch_updates(model, bins=5),
    "sharpness": lambda model, optimizer: watch_sharpness(model, loss, DATA, 0.05),
    "random sharpness": lambda model, optimizer: watch_sharpness(model, loss, DATA, 0.05, direction="random"),
    "a careless gauge": lambda model, optimizer: (
        lambda step: {"x": torch.rand(1).item() + random.random() + float(np.random.random_sample())}
    ),
}
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "genie": lambda ps: GENIE(ps, lr=0.1),
    "nesterov": lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9, nesterov=True),
}


def run(
    make: Callable[[Any], torch.optim.Optimizer], watch: Watch | None, where: str = "after"
) -> dict[str, Any]:
    """Twelve steps of training with a scheduler; the monitor before, within or after the step."""
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    model = Noisy()
    optimizer = make(model.parameters())
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.95)
    monitor = Monitor(watch(model, optimizer), every(3)) if watch else lambda step: None
    for step in range(12):
        index = torch.randint(0, 64, (16,))
        optimizer.zero_grad()
        value = loss(model, DATA[0][index], DATA[1][index])
        if where == "between":  # between forward and backward
            monitor(step)
        value.backward()
        if where == "before":
            monitor(step)
        optimizer.step()
        schedule.step()
        if where == "after":
            monitor(step)
    streams = torch.rand(1).item(), random.random(), float(np.random.random_sample())
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "streams": streams,
        "grad": [p.grad for p in model.parameters()],
    }


@pytest.mark.filterwarnings("ignore:Step . could not be measured. The weights did not change")
@pytest.mark.parametrize("name", WATCHES)
@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("where", ["between", "before", "after"])
def test_a_run_is_the_same_to_the_bit(name: str, kind: str, where: str) -> None:
    plain, watched = run(OPTIMIZERS[kind], None), run(OPTIMIZERS[kind], WATCHES[name], where)
    assert plain["streams"] == watched["streams"]
    assert list(plain["model"]) == list(watched["model"])
    for key, value in plain["model"].items():
        assert torch.equal(value, watched["model"][key]), key
    for a, b in zip(plain["grad"], watched["grad"], strict=True):
        assert torch.equal(a, b)
    for index, state in plain["optimizer"]["state"].items():
        for key, value in state.items():
            if value is not None:
                assert torch.equal(value, watched["optimizer"]["state"][index][key])


def test_the_network_of_that_test_is_easily_disturbed() -> None:
    """Without the care of this package the same measurement changes the run."""

    def careless(model: nn.Module, optimizer: torch.optim.Optimizer) -> Any:
        def gauge(step: int) -> dict[str, float]:
            torch.default_generator.manual_seed(1)
            return {"loss": loss(model, *DATA).item()}

        return gauge

    plain, touched = run(OPTIMIZERS["genie"], None), run(OPTIMIZERS["genie"], careless)
    assert not torch.equal(plain["model"]["calls"], touched["model"]["calls"])  # it calls the model
    assert plain["streams"] == touched["streams"]  # but its random numbers are its own


def test_log_steps() -> None:
    due = [s for s in range(20_000) if log_steps(50)(s)]
    within = [s for s in due if s <= 10_000]
    assert within[0] == 1
    assert within[-1] == 10_000
    assert 35 <= len(within) <= 50
    ratios = [b / a for a, b in itertools.pairwise(due) if a > 200]
    assert max(ratios) < 1.22  # 10000^(1/49) is 1.207
    assert min(ratios) > 1.19
    assert due[-1] > 10_000


@pytest.mark.parametrize("bad", [lambda: every(0), lambda: log_steps(1), lambda: log_steps(50, last=1)])
def test_bad_schedules(bad: Callable[[], Any]) -> None:
    with pytest.raises(MeasurementError, match=r"^got \w+=[01]; expected a whole number of at least [12]\.$"):
        bad()


def test_records_and_jsonl(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "run.jsonl"
    monitor = Monitor(
        {"a": lambda s: {"x": s / 2, "y": math.inf}, "b": lambda s: {"x": torch.tensor(1.5)}}, every(2), to=path
    )
    assert monitor(1) is None
    assert monitor(2) == {"step": 2, "a/x": 1.0, "a/y": math.inf, "b/x": 1.5}
    assert all(isinstance(v, float) for k, v in monitor.records[0].items() if k != "step")
    monitor(4)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[0] == {"step": 2, "a/x": 1.0, "a/y": None, "b/x": 1.5}
    assert [line["step"] for line in lines] == [2, 4]
    Monitor(lambda s: {"x": 1.0}, every(1), to=path)(5)  # a second monitor goes on in the same file
    assert len(path.read_text().splitlines()) == 3


def test_tensorboard(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    seen: list[dict[str, float]] = []
    with SummaryWriter(str(tmp_path)) as writer:
        monitor = Monitor({"g": lambda s: {"x": s * 2.0}}, every(5), to=[writer, seen.append])
        for step in range(11):
            monitor(step)
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("g/x")] == [(0, 0.0), (5, 10.0), (10, 20.0)]
    assert seen == monitor.records


def test_a_sink_that_is_none() -> None:
    with pytest.raises(MeasurementError, match="A monitor cannot write to a int"):
        Monitor(lambda s: {}, every(1), to=3)  # type: ignore[arg-type]


def test_what_cannot_be_measured_is_a_warning_and_a_line(tmp_path: Path) -> None:
    model, (x, y) = mlp(torch.float32)
    path = tmp_path / "run.jsonl"
    broken = (torch.full_like(x, torch.nan), y)
    monitor = Monitor({"bad": watch_gsnr(model, loss, broken), "good": lambda s: {"x": 1.0}}, every(1), to=path)
    with pytest.warns(UserWarning, match="Step 7 could not be measured. The gradients of"):
        record = monitor(7)
    assert record == {"step": 7, "good/x": 1.0}
    line = json.loads(path.read_text())
    assert line["problem"].startswith("bad: The gradients of")


@pytest.mark.parametrize("name", CASES)
def test_each_watch_gives_floats(name: str) -> None:
    model, data = CASES[name](torch.float32, samples=40)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    updates = watch_updates(model, bins=4)
    loss(model, *data).backward()
    optimizer.step()
    gauges = {
        "gsnr": watch_gsnr(model, loss, data),
        "osgr": watch_osgr(model, optimizer, loss, data, 8),
        "updates": updates,
        "sharpness": watch_sharpness(model, loss, data, 0.05),
    }
    record = Monitor(gauges, every(1))(0)
    assert record is not None
    assert {"gsnr/pooled", "osgr/osgr", "osgr/theorem_osgr", "updates/gini"} <= set(record)
    assert all(isinstance(v, float) for k, v in record.items() if k != "step")
    assert len(updates.recorder.heatmap().steps) == 1


def test_the_theorem_waits_for_a_state() -> None:
    model, data = mlp(torch.float32, samples=40)
    fresh = watch_osgr(model, torch.optim.Adam(model.parameters()), loss, data, 8)(0)
    assert "osgr" in fresh
    assert "theorem_osgr" not in fresh
    assert "theorem_osgr" in watch_osgr(model, torch.optim.SGD(model.parameters(), lr=0.1), loss, data, 8)(0)


def test_undisturbed_puts_things_back_after_an_error() -> None:
    model = Noisy()
    model.train()
    model.head.eval()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(RuntimeError, match="mat1"), undisturbed(model, "train"):
        model(torch.cat([model(DATA[0]), DATA[0]], 1))  # the first call works, the second has the wrong shape
    assert model.training
    assert not model.head.training
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


def test_a_loss_that_writes_into_grad_is_told_so() -> None:
    model, data = mlp(torch.float32)
    loss(model, *data).backward()
    with pytest.raises(MeasurementError, match=r"wrote into \.grad"), undisturbed(model):
        loss(model, *data).backward()


def test_own_randomness_queues_nothing_for_cuda() -> None:
    before = len(torch.cuda._queued_calls)
    with own_randomness(5):
        first = torch.rand(1)
    with own_randomness(5):
        assert torch.equal(torch.rand(1), first)
    assert len(torch.cuda._queued_calls) == before
