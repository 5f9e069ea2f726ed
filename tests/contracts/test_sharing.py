"""Every algorithm that several processes can share gives on two of them what it gives on one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from genie_dg.algorithms.registry import ALGORITHMS
from genie_dg.bench.parallel import World
from genie_dg.runtime import same_kernels

from .shared_steps import SAMPLES_SEEN, trajectory

ROOT = Path(__file__).parents[2]
SHAREABLE = [row.name for row in ALGORITHMS.values() if not row.one_process]
DIFFERENT = ["CORAL", "Fish", "MixStyle", "CDANN/sam"]
"""A penalty on features, gradients of its own, an edit inside the network, and two roles in several passes."""
MORE = ["SagNet/sag_point=first", "PCGrad/surgery=agr-rand", "GSNRDropout/domains=1", "CORAL/domains=1"]
MORE += ["ERM/genie", "ERM/adahessian", "GroupDRO/adahessian"]


def differences(cases: list[str], folder: Path, size: int = 2) -> dict[str, float]:
    """For each case the largest difference of a tensor from that of one process, relative to its size."""
    command = [sys.executable, "-m", "tests.contracts.shared_steps", str(folder)]
    processes = [
        subprocess.Popen([*command, str(rank), str(size), *cases], cwd=ROOT, stderr=subprocess.PIPE, text=True)
        for rank in range(size)
    ]
    with same_kernels(1):
        alone = {case: trajectory(case, World()) for case in cases}
    for process in processes:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors[-3000:]
    found: dict[str, float] = dict.fromkeys(cases, 0.0)
    ranks = [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(size)]
    for case in cases:
        samples = sum(together[case].pop(SAMPLES_SEEN) for together in ranks)
        assert samples == alone[case].pop(SAMPLES_SEEN), f"{case}: each process computes its rows only"
        for together in ranks:
            assert together[case].keys() == alone[case].keys()
            for name, value in alone[case].items():
                apart = (together[case][name].double() - value.double()).abs().max()
                found[case] = max(found[case], float(apart / value.double().abs().max().clamp_min(1e-3)))
    return found


def assert_close(found: dict[str, float]) -> None:
    assert {case: value for case, value in found.items() if not value < 1e-10} == {}


def test_two_processes_take_the_steps_of_one(tmp_path: Path) -> None:
    assert set(DIFFERENT) <= {*SHAREABLE, "CDANN/sam"}
    assert_close(differences(DIFFERENT, tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 3])
def test_several_processes_take_the_steps_of_one_with_every_algorithm(size: int, tmp_path: Path) -> None:
    assert_close(differences([*SHAREABLE, *MORE], tmp_path, size))
