"""SAM, GAM, FAD and SAGM in mixed precision, with batch norms, compiled, and over several processes."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from genie_dg import GENIE
from genie_dg.optim.fad import FAD
from genie_dg.optim.gam import GAM
from genie_dg.optim.passes import Passes
from genie_dg.optim.sagm import SAGM
from genie_dg.optim.sam import SAM
from tests.versions import TORCH

RULES: dict[str, tuple[Callable[..., Passes], int]] = {
    "SAM": (lambda base, **more: SAM(base, rho=0.3, **more), 2),
    "GAM": (lambda base, **more: GAM(base, rho=0.4, rho_prime=0.1, beta1=0.4, gamma=0.3, **more), 4),
    "FAD": (lambda base, **more: FAD(base, rho=0.3, alpha=0.4, beta=0.9, **more), 4),
    "SAGM": (lambda base, **more: SAGM(base, rho=0.3, alpha=0.2, **more), 2),
}
EACH = pytest.mark.parametrize("rule", RULES)


def network(*middle: nn.Module) -> nn.Sequential:
    """Layers that do not divide by two, with anything in the middle."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 7), *middle, nn.Tanh(), nn.Linear(7, 1))


def batch(rank: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(7 + rank)
    return torch.randn(16, 3, generator=generator), torch.randn(16, 1, generator=generator)


def closure_of(
    optimizer: Passes, model: Callable[[Tensor], Tensor], scale: Callable[[Tensor], Tensor] = lambda x: x
) -> Callable[[], Tensor]:
    x, y = batch()

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        scale(loss).backward()
        return loss

    return closure


def weights(model: nn.Module) -> list[Tensor]:
    return [p.detach().clone() for p in model.parameters()]


def same(a: list[Tensor], b: list[Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def gradient(model: nn.Module) -> Tensor:
    return torch.cat([p.grad.reshape(-1) for p in model.parameters() if p.grad is not None])


@pytest.mark.parametrize("base", ["SGD", "Adam", "GENIE"])
@EACH
def test_with_a_scaler_the_run_is_the_same(rule: str, base: str) -> None:
    kinds: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
        "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        "Adam": lambda p: torch.optim.Adam(p, lr=0.01),
        "GENIE": lambda p: GENIE(p, lr=0.01),
    }
    plain, scaled = network(), network()
    one, two = (RULES[rule][0](kinds[base](net.parameters())) for net in (plain, scaled))
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=3)
    for _ in range(8):
        first = one.step(closure_of(one, plain))
        second = two.gather(closure_of(two, scaled, scaler.scale), scaler if rule == "SAGM" else None)
        scaler.step(two.base)
        scaler.update()
        assert second.item() == pytest.approx(first.item(), rel=1e-4)
    assert scaler.get_scale() == 2.0**12
    for p, q in zip(plain.parameters(), scaled.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
@EACH
def test_overflow_in_any_pass_skips_the_step(rule: str, value: float) -> None:
    make, passes = RULES[rule]
    for bad in range(1, passes + 1):
        model = network()
        before = weights(model)
        optimizer = make(torch.optim.SGD(model.parameters(), lr=0.1))
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        inner, count = closure_of(optimizer, model, scaler.scale), 0

        def closure() -> Tensor:
            nonlocal count
            count += 1
            loss = inner()  # noqa: B023
            assert torch.isfinite(loss)  # the weights of every pass are finite
            if count == bad:  # noqa: B023
                model[0].weight.grad[1, 2] = value  # type: ignore[index, union-attr] # noqa: B023
            return loss

        optimizer.gather(closure, scaler)
        scaler.step(optimizer.base)
        scaler.update()
        assert same(weights(model), before)
        assert scaler.get_scale() == 512.0
        optimizer.gather(inner, scaler)
        scaler.step(optimizer.base)
        scaler.update()
        assert not same(weights(model), before)
        assert all(torch.isfinite(w).all() for w in weights(model))
        assert scaler.get_scale() == 512.0


@EACH
def test_autocast_around_the_step_sees_the_moved_weights(rule: str) -> None:
    """Autocast keeps casts of the weights until its outermost block ends."""
    inside, outside = network(), network()
    one, two = (RULES[rule][0](torch.optim.SGD(net.parameters(), lr=0.1)) for net in (inside, outside))

    def forward(x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return inside(x).float()

    for _ in range(3):
        one.step(closure_of(one, forward))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            two.step(closure_of(two, lambda x: outside(x).float()))
    assert same(weights(inside), weights(outside))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        before = outside(batch()[0])
        two.gather(closure_of(two, lambda x: outside(x).float()))
        assert torch.equal(outside(batch()[0]), before)


NORMS: dict[str, Callable[[bool], nn.Module]] = {
    "batch": lambda track: nn.BatchNorm1d(7, track_running_stats=track),
    "cumulative": lambda track: nn.BatchNorm1d(7, momentum=None, track_running_stats=track),
    "instance": lambda track: nn.Sequential(
        nn.Unflatten(1, (7, 1)),
        nn.Upsample(3, mode="linear"),
        nn.Dropout(0.0),
        nn.InstanceNorm1d(7, affine=True, track_running_stats=track),
        nn.AdaptiveMaxPool1d(1),
        nn.Flatten(),
    ),
    "nested": lambda track: nn.Sequential(nn.Sequential(nn.BatchNorm1d(7, track_running_stats=track))),
}


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("kind", NORMS)
@EACH
def test_statistics_change_once(rule: str, kind: str, given: bool) -> None:
    model, once, without = network(NORMS[kind](True)), network(NORMS[kind](True)), network(NORMS[kind](False))
    optimizer = RULES[rule][0](torch.optim.SGD(model.parameters(), lr=0.1), model=model if given else None)
    other = RULES[rule][0](torch.optim.SGD(without.parameters(), lr=0.1))
    for count in range(1, 4):
        once.load_state_dict({**once.state_dict(), **dict(model.named_parameters())})
        once(batch()[0])
        optimizer.step(closure_of(optimizer, model))
        other.step(closure_of(other, without))
        buffers = dict(model.named_buffers())
        assert len(buffers) == 3
        for name, expected in once.named_buffers():
            assert torch.equal(buffers[name], expected), name
            if "num_batches" in name and kind != "instance":  # instance norms do not count
                assert expected == count
    assert same(weights(model), weights(without))  # every pass normalises with the batch
    assert all(m.training for m in model.modules())
    assert all(m.track_running_stats for m in model.modules() if isinstance(m, nn.BatchNorm1d))
    assert not nn.modules.module._global_forward_pre_hooks


@pytest.mark.parametrize("how", ["module", "in place", "function", "whole"])
def test_a_compiled_model_needs_to_be_given(how: str) -> None:
    torch._dynamo.reset()
    model, eager = network(nn.BatchNorm1d(7)), network(nn.BatchNorm1d(7))
    called: Callable[[Tensor], Tensor] = model
    if how == "module":
        called = torch.compile(model, backend="eager")
    elif how == "function":
        called = torch.compile(lambda x: model(x), backend="eager")
    else:
        model.compile(backend="eager", fullgraph=how == "whole")
    one = GAM(torch.optim.SGD(model.parameters(), lr=0.1), model=model)
    two = GAM(torch.optim.SGD(eager.parameters(), lr=0.1))
    for _ in range(2):
        one.step(closure_of(one, called))
        two.step(closure_of(two, eager))
    assert model[1].num_batches_tracked == 2
    for p, q in zip(model.state_dict().values(), eager.state_dict().values(), strict=True):
        torch.testing.assert_close(p, q)


def train(model: nn.Module, rule: str, ranks: list[int]) -> list[Tensor]:
    optimizer = RULES[rule][0](torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))

    def closure() -> Tensor:
        optimizer.zero_grad()
        losses = [(model(x) - y).square().mean() for x, y in map(batch, ranks)]
        loss = torch.stack(losses).mean()
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)
    return [p.full_tensor() if "DTensor" in type(p.data).__name__ else p.detach() for p in model.parameters()]


def one_of_two(rank: int, folder: str) -> None:
    from torch.distributed.device_mesh import init_device_mesh

    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:  # torch 2.5
        from torch.distributed._composable.fsdp import fully_shard

    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store = dist.FileStore(str(Path(folder) / "store"), 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=120))
    results = {}
    for rule in ("SAM", "GAM", "SAGM"):
        results["ddp", rule] = train(nn.parallel.DistributedDataParallel(network()), rule, [rank])
        if TORCH < (2, 6):  # FSDP2 needs CUDA there
            continue
        sharded = network()
        for part in (sharded[0], sharded[2], sharded):
            fully_shard(part, mesh=init_device_mesh("cpu", (2,)))
        results["fsdp", rule] = [p.detach() for p in train(sharded, rule, [rank])]
    torch.save(results, Path(folder) / f"{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def test_two_processes_agree_with_one(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(one_of_two, (str(tmp_path),), nprocs=2)
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1))
    for how, rule in first:
        assert same(first[how, rule], second[how, rule])
        for p, q in zip(first[how, rule], train(network(), rule, [0, 1]), strict=True):
            torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)
