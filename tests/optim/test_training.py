"""GENIE inside training loops: resume, AMP, compile, schedulers, accumulation, other random numbers."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._dynamo.testing
from torch import Tensor, nn

from genie_dg import GENIE
from genie_dg.optim import _device, _kernels
from tests.versions import STABLE_COMPILATION

PATHS: dict[str, dict[str, Any]] = {
    "native": {},
    "loop": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}


@pytest.fixture(autouse=True)
def kernels_for_small_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_device, "PACKED_SIZE", 1)


def network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Dropout(0.2), nn.Linear(20, 3))


def one_layer(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 3))


def batch(step: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(step)
    return torch.randn(8, 6, generator=generator), torch.randn(8, 3, generator=generator) * 9


def train(net: nn.Module, optimizer: GENIE, steps: range) -> None:
    for step in steps:
        x, y = batch(step)
        torch.manual_seed(step)  # for the network's own dropout
        optimizer.zero_grad()
        (net(x) - y).square().mean().backward()
        optimizer.step()


def weights(net: nn.Module) -> list[Tensor]:
    return [p.detach().clone() for p in net.parameters()]


def equal(a: list[Tensor], b: list[Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("path", PATHS)
def test_resume_is_bit_exact(path: str) -> None:
    whole = network()
    optimizer = GENIE(whole.parameters(), seed=3, **PATHS[path])
    train(whole, optimizer, range(12))

    first = network()
    optimizer = GENIE(first.parameters(), seed=3, **PATHS[path])
    train(first, optimizer, range(7))
    file = io.BytesIO()
    torch.save({"net": first.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    second = network(seed=99)
    second.load_state_dict(saved["net"])
    optimizer = GENIE(second.parameters(), lr=1.0, seed=8, **PATHS[path])
    optimizer.load_state_dict(saved["optimizer"])
    train(second, optimizer, range(7, 12))
    assert equal(weights(whole), weights(second))


@pytest.mark.parametrize("path", PATHS)
def test_weights_may_be_replaced_between_steps(path: str) -> None:
    """EMA swaps, clipping, loading: the optimizer keeps no copy of the weights and no stale view of them."""
    nets = [network(), network()]
    optimizers = [GENIE(net.parameters(), **PATHS[path]) for net in nets]
    for step in range(4):
        for i, (net, optimizer) in enumerate(zip(nets, optimizers, strict=True)):
            train(net, optimizer, range(step, step + 1))
            with torch.no_grad():
                for p in net.parameters():
                    if i:
                        p.data = p.data.clone() * 0.5  # other memory, same values as below
                    else:
                        p.mul_(0.5)
    assert equal(weights(nets[0]), weights(nets[1]))


SCHEDULES: dict[str, Callable[[GENIE], Any]] = {
    "step": lambda o: torch.optim.lr_scheduler.StepLR(o, 1, 0.9),
    "cosine": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 10),
}


@STABLE_COMPILATION
@pytest.mark.parametrize("schedule", ["step", pytest.param("cosine", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "tensor_lr",
    [pytest.param(False, id="float lr"), pytest.param(True, id="tensor lr", marks=pytest.mark.slow)],
)
def test_compiled_step_does_not_recompile(schedule: str, tensor_lr: bool) -> None:
    """Two compilations at most (the second when a float lr turns out to vary), and the right result.

    What is compiled again is dynamo's decision, whatever compiles the graph afterwards; one case of the four
    goes through inductor, with a small network, since that takes long with an empty cache.
    """
    torch._dynamo.reset()
    backend = "inductor" if tensor_lr and schedule == "cosine" else "aot_eager"
    counted = torch._dynamo.testing.CompileCounterWithBackend(backend)
    make = one_layer if backend == "inductor" else network
    nets, frames = [make(), make()], []
    for net, compiled in zip(nets, (False, True), strict=True):
        net.eval()
        lr: float | Tensor = torch.tensor(0.015) if tensor_lr else 0.015
        optimizer = GENIE(net.parameters(), lr=lr, foreach=False)
        scheduler = SCHEDULES[schedule](optimizer)
        step = torch.compile(optimizer.step, backend=counted) if compiled else optimizer.step
        for i in range(8):
            x, y = batch(i)
            optimizer.zero_grad()
            (net(x) - y).square().mean().backward()
            step()
            scheduler.step()
            frames.append(counted.frame_count)
    assert frames[7] == 0, "the eager run must not compile"
    assert 1 <= frames[9] <= 2
    assert frames[-1] == frames[9], f"compilations after each step: {frames[8:]}"
    for a, b in zip(weights(nets[0]), weights(nets[1]), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_fused_kernel_is_compiled_once() -> None:
    """No size, schedule or step compiles it again; the counter of recompilations stands still."""
    _kernels.kernels_for.cache_clear()
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    params = [nn.Parameter(torch.randn(n)) for n in (1000, 4096, 70_000, 2560, 77)]
    optimizer = GENIE(params, fused=True)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    graphs = []
    for step in range(6):
        for p in params:
            p.grad = torch.randn(p.shape, generator=torch.Generator().manual_seed(step)) * 1e-3
        optimizer.step()
        scheduler.step()
        graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    assert graphs[0] <= 9, "each of three stages for rows of lanes, and flat below and above 4096 elements"
    assert graphs[-1] == graphs[0]
