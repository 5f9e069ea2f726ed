"""Shared fixtures: the golden trajectories and a clean set of compiled kernels."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

torch.set_num_threads(1)  # the tests run two at a time; two threads each would fight for two cores

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(params=["small", "large"])
def golden(request: pytest.FixtureRequest) -> dict[str, Any]:
    return json.loads((GOLDEN / f"genie_{request.param}_variance.json").read_text())


@pytest.fixture
def fresh_kernels() -> Iterator[None]:
    """Compile anew for this test, and throw away what it compiled."""
    from genie_dg.optim._fused import kernels_for

    kernels_for.cache_clear()
    torch._dynamo.reset()
    yield
    kernels_for.cache_clear()
    torch._dynamo.reset()
