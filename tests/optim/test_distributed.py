"""Real processes over gloo: replicas stay bit-equal, shards follow the unsharded trajectory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from genie_dg import GENIE
from genie_dg.optim import _local
from tests.optim import distributed_jobs as jobs
from tests.versions import FSDP2_ON_CPU

ROOT = Path(__file__).parents[2]


def launch(job: str, path: str, out: Path, world: int = 2) -> list[dict[str, Any]]:
    """Run one job on several processes and return what each of them saved."""
    python_path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": python_path, "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, "-m", "tests.optim.distributed_jobs", job, path, str(out)]
    running = [
        subprocess.Popen(
            [*command, str(rank), str(world)], cwd=ROOT, env=env, stderr=subprocess.PIPE, text=True
        )
        for rank in range(world)
    ]
    errors = [process.communicate(timeout=300)[1] for process in running]
    assert [process.returncode for process in running] == [0] * world, "\n".join(errors)
    return [torch.load(out / f"rank{rank}.pt", weights_only=True) for rank in range(world)]


QUICK_AND_SLOW = [
    path if path in ("native", "scale_free") else pytest.param(path, marks=pytest.mark.slow)
    for path in jobs.PATHS
]
"""The default path and the option with collectives of its own; the other paths are slow tests."""


@pytest.mark.parametrize("path", QUICK_AND_SLOW)
def test_ddp_replicas_are_bit_equal(path: str, tmp_path: Path) -> None:
    first, second = launch("ddp", path, tmp_path)
    for a, b in zip(first["weights"], second["weights"], strict=True):
        assert torch.equal(a, b)
    for a, b in zip(first["weights"], jobs.alone(path, jobs.STEPS["ddp"], 2), strict=True):
        torch.testing.assert_close(a, b, rtol=2e-3, atol=2e-3)


@FSDP2_ON_CPU
@pytest.mark.parametrize("path", QUICK_AND_SLOW)
def test_fsdp2_follows_the_unsharded_trajectory(path: str, tmp_path: Path) -> None:
    """Noise on, large variance: every shard must see the noise of its global indices and the global kappa."""
    first, second = launch("fsdp", path, tmp_path)
    assert first["state is sharded"]
    expected = jobs.alone(path, jobs.STEPS["fsdp"], 2)
    for a, b, c in zip(first["weights"], second["weights"], expected, strict=True):
        assert torch.equal(a, b)
        torch.testing.assert_close(a, c, rtol=1e-4, atol=1e-4)


@FSDP2_ON_CPU
def test_hybrid_sharding(tmp_path: Path) -> None:
    """A mesh of copies and shards: kappa is summed over the shards, not over the copies."""
    first, _ = launch("hybrid", "foreach", tmp_path)
    for a, b in zip(first["weights"], jobs.alone("foreach", jobs.STEPS["hybrid"], 2), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("path", QUICK_AND_SLOW)
def test_sharded_along_the_second_dimension(path: str, tmp_path: Path) -> None:
    first, _ = launch("columns", path, tmp_path)
    generator = torch.Generator().manual_seed(0)
    p = torch.nn.Parameter(torch.randn(6, 9, generator=generator))
    optimizer = GENIE([p], seed=4, foreach=False, scale_free=path == "scale_free")
    for _ in range(jobs.STEPS["columns"]):
        p.grad = torch.randn(6, 9, generator=generator) * 3
        optimizer.step()
    torch.testing.assert_close(first["weights"][0], p.detach(), rtol=1e-5, atol=1e-5)


def test_a_plain_tensor_is_its_own_shard() -> None:
    p = torch.zeros(3)
    assert (_local.local(p) is p, _local.local_elements(p), _local.shard_groups(p)) == (True, 0, ())
