"""The golden trajectories, through the real optimizer, by all three paths and in two precisions.

The files give the normal numbers and the masks, so `_random` is replaced by a look-up: the key of a step is
its number, and the draws are rows of two tables. Everything else is the code that users run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from genie_dg import GENIE, _random
from genie_dg.optim import _device, _kernels

PATHS = {"loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
VARIANTS = {
    "released/precondition": {"noise": False, "dropout": 0.0},
    "released/precondition+noise": {"dropout": 0.0},
    "released/precondition+mask": {"noise": False},
    "released/full": {},
    "algorithm1/precondition": {"noise": False, "dropout": 0.0},
    "algorithm1/full": {},
}


XI, DROP = torch.zeros(25, 12, dtype=torch.float64), torch.zeros(25, 12, dtype=torch.bool)
"""The file's draws. The compiled kernels read these two tensors, so both files can share a kernel."""


def place(word: Tensor) -> tuple[Tensor, Tensor]:
    """Step and element, out of a scripted word."""
    return (word >> 8).long() - 1, (word & 255).long()


@pytest.fixture
def scripted(golden: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the random numbers by those of the file, and send the twelve entries to the kernel.

    Keys are step numbers, lane words are lane numbers, and a word is step * 256 + lane.
    """
    XI.copy_(torch.tensor(golden["xi"], dtype=torch.float64))
    DROP.copy_(torch.tensor(golden["keep"]) == 0)

    def zero_dropped_(values: Tensor, word: Tensor, threshold: int) -> Tensor:
        return values.mul_(~DROP[place(word)])

    script: dict[str, Any] = {
        "stream_key": lambda base, step: torch.zeros(2, base.shape[1], dtype=torch.int32) + step,
        "lane_words": lambda device: torch.arange(256, dtype=torch.int32),
        "row_words": lambda rows, key0, key1: torch.zeros_like(rows) + key0 * 256,
        "element_words": lambda row, lane: row + lane,
        "element_words_": lambda row, lane, out, scratch: torch.add(row, lane, out=out),
        "drop_mask": lambda word, threshold: DROP[place(word)],
        "zero_dropped_": zero_dropped_,
        "normal": lambda word: XI[place(word)],
    }
    for name, replacement in script.items():
        monkeypatch.setattr(_random, name, replacement)
    monkeypatch.setattr(_device, "PACKED_SIZE", 1)
    monkeypatch.setattr(_kernels, "_WARM_UP", 12)


@pytest.fixture(scope="module", autouse=True)
def own_kernels() -> Iterator[None]:
    """Kernels with scripted randomness must not be seen by other tests, nor theirs by these."""
    _kernels.kernels_for.cache_clear()
    yield
    _kernels.kernels_for.cache_clear()


def cases() -> Iterator[Any]:
    """Every path and rule in both precisions; of those that are compiled, the whole rules are not slow."""
    for dtype in (torch.float64, torch.float32):
        for path in PATHS:
            for variant in VARIANTS:
                slow = path == "fused" and not variant.endswith("full")
                name = f"{str(dtype)[6:]}-{path}-{variant}"
                yield pytest.param(dtype, path, variant, id=name, marks=[pytest.mark.slow] if slow else [])


@pytest.mark.parametrize(("dtype", "path", "variant"), list(cases()))
def test_golden_trajectory(
    golden: dict[str, Any], scripted: None, dtype: torch.dtype, path: str, variant: str
) -> None:
    theta = torch.nn.Parameter(torch.tensor(golden["theta0"], dtype=dtype))
    options: dict[str, Any] = {"dropout": golden["p"], **VARIANTS[variant], **PATHS[path]}
    optimizer = GENIE(
        [theta],
        lr=golden["lr"],
        beta=golden["beta"],
        noise_std=golden["sigma"],
        formulation=variant.split("/")[0],
        **options,
    )
    tolerance = 1e-10 if dtype == torch.float64 else 1e-5
    for gradient, expected in zip(golden["grads"], golden["theta"][variant], strict=True):
        theta.grad = torch.tensor(gradient, dtype=dtype)
        optimizer.step()
        wanted = torch.tensor(expected, dtype=torch.float64)
        torch.testing.assert_close(theta.detach().double(), wanted, rtol=tolerance, atol=tolerance)
