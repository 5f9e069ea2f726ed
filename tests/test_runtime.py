"""One process, one owner of its settings; the user's environment decides where it says something."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest
import torch

from genie_dg.runtime import cores, same_kernels

FAULTS = """
import resource, torch
from genie_dg.runtime import keep_memory

done = keep_memory()
for _ in range(12):
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(2**24)  # 64 MB, which glibc gives back to the system as soon as it is freed
print(int(done), resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")
@pytest.mark.parametrize("own", [{}, {"MALLOC_TRIM_THRESHOLD_": "131072"}, {"GLIBC_TUNABLES": "x"}])
def test_freed_memory_is_kept_unless_the_environment_says_otherwise(own: dict[str, str]) -> None:
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("MALLOC_", "GLIBC_", "LD_PRE"))
    }
    command = [sys.executable, "-c", FAULTS]
    said = subprocess.run(command, env={**environment, **own}, capture_output=True, text=True, check=True)
    done, faults = map(int, said.stdout.split())
    assert bool(done) is not bool(own)
    assert (faults < 1000) is bool(done), f"{faults} page faults, where 64 MB are 16,384 pages"


def test_threads_are_set_and_restored() -> None:
    usual = torch.get_num_threads()
    with same_kernels(usual + 1):
        assert torch.get_num_threads() == usual + 1
        assert torch.backends.cudnn.deterministic
    assert torch.get_num_threads() == usual


def test_cores_are_those_that_this_process_may_use() -> None:
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)
    assert cores() == len(allowed)
