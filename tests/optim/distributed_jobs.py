"""What each process of the distributed tests does. Run as ``python -m tests.optim.distributed_jobs JOB ...``.

Every job starts a real gloo group through a file, trains the same small network and writes what the test
compares to ``OUT/rank<i>.pt``.
"""

from __future__ import annotations

import os
import sys
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from genie_dg import GENIE

STEPS = {"ddp": 50, "fsdp": 20, "hybrid": 10, "columns": 10}
PATHS: dict[str, dict[str, Any]] = {
    "native": {},
    "loop": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
    "scale_free": {"scale_free": True, "lr": 0.015},
}


def network() -> nn.Sequential:
    """Sizes that do not divide by the number of ranks, and one tensor smaller than it."""
    generator = torch.Generator().manual_seed(0)
    net = nn.Sequential(nn.Linear(7, 33), nn.Tanh(), nn.Linear(33, 5), nn.Tanh(), nn.Linear(5, 1))
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.randn(p.shape, generator=generator) * 0.3)
    return net


def loss_of(net: nn.Module, step: int, rank: int) -> torch.Tensor:
    """Targets so large that the variance of the gradients passes 0.1 and the noise is live."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    x = torch.randn(16, 7, generator=generator)
    return (net(x) - 30 * torch.randn(16, 1, generator=generator)).square().mean()


def train(net: nn.Module, optimizer: GENIE, steps: int, ranks: list[int]) -> None:
    """Gradients are the mean over the given ranks' batches."""
    for step in range(steps):
        optimizer.zero_grad()
        (sum(loss_of(net, step, rank) for rank in ranks) / len(ranks)).backward()  # type: ignore[union-attr]
        optimizer.step()


def alone(path: str, steps: int, ranks: int) -> list[torch.Tensor]:
    """The same training in one process, for the test to compare with."""
    net = network()
    optimizer = GENIE(net.parameters(), seed=4, **{"lr": 1e-3, **PATHS[path]})
    train(net, optimizer, steps, list(range(ranks)))
    assert optimizer.gauges()["live"] > 0.5 or path == "scale_free"
    return [p.detach() for p in net.parameters()]


def ddp(rank: int, world: int, path: str) -> dict[str, Any]:
    torch.manual_seed(100 + rank)  # different on purpose: the replicas must not notice
    net = nn.parallel.DistributedDataParallel(network())
    optimizer = GENIE(net.parameters(), seed=4, **{"lr": 1e-3, **PATHS[path]})
    train(net, optimizer, STEPS["ddp"], [rank])
    torch.rand(1)
    return {"weights": [p.detach() for p in net.parameters()]}


def sharded(rank: int, world: int, path: str, kind: str) -> dict[str, Any]:
    from torch.distributed.device_mesh import init_device_mesh

    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:  # torch 2.5
        from torch.distributed._composable.fsdp import fully_shard
    from torch.distributed.tensor import DTensor

    net = network()
    options: dict[str, Any] = {"mesh": init_device_mesh("cpu", (world,))}
    if kind == "hybrid":
        options = {"mesh": init_device_mesh("cpu", (2, 1), mesh_dim_names=("copies", "shards"))}
    for layer in net:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, **options)
    fully_shard(net, **options)
    torch.manual_seed(100 + rank)
    optimizer = GENIE(net.parameters(), seed=4, **{"lr": 1e-3, **PATHS[path]})
    train(net, optimizer, STEPS[kind], [rank])
    full = [p.full_tensor().detach() if isinstance(p, DTensor) else p.detach() for p in net.parameters()]
    state = optimizer.state[next(net.parameters())]["exp_avg"]
    return {"weights": full, "state is sharded": isinstance(state, DTensor)}


def columns(rank: int, world: int, path: str) -> dict[str, Any]:
    """A weight sharded along its second dimension, as tensor parallelism does; gradients are made by hand."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (world,))
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(6, 9, generator=generator)
    p = nn.Parameter(distribute_tensor(weight, mesh, [Shard(1)]))
    optimizer = GENIE([p], seed=4, **PATHS[path])
    for _ in range(STEPS["columns"]):
        p.grad = distribute_tensor(torch.randn(6, 9, generator=generator) * 3, mesh, [Shard(1)])
        optimizer.step()
    assert isinstance(p, DTensor)
    return {"weights": [p.full_tensor().detach()]}


def main() -> None:
    job, path, out, rank, world = (
        sys.argv[1],
        sys.argv[2],
        Path(sys.argv[3]),
        int(sys.argv[4]),
        int(sys.argv[5]),
    )
    warnings.simplefilter("default")
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store = dist.FileStore(str(out / "store"), world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=timedelta(seconds=300))
    result = (
        {"ddp": ddp, "columns": columns}[job](rank, world, path)
        if job in ("ddp", "columns")
        else sharded(rank, world, path, job)
    )
    torch.save(result, out / f"rank{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
