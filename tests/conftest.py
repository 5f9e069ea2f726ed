"""Shared by all tests: one thread for each, and the golden trajectories."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

torch.set_num_threads(1)  # the tests run two at a time; two threads each would fight for two cores

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(autouse=True)
def denormals() -> None:
    """Numbers below the smallest normal one are kept: libraries that torch 2.5 compiles turn that off."""
    torch.set_flush_denormal(False)


@pytest.fixture(params=["small", "large"])
def golden(request: pytest.FixtureRequest) -> dict[str, Any]:
    return json.loads((GOLDEN / f"genie_{request.param}_variance.json").read_text())
