"""The golden trajectories, through the real optimizer, by all three paths and in two precisions.

The files give the normal numbers and the masks, so `_random` is replaced by a look-up: the key of a step is
its number, and the draws are rows of two tables. Everything else is the code that users run.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from genie_dg import GENIE, _random
from genie_dg.optim import _fused

PATHS = {"loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
VARIANTS = {
    "released/precondition": {"noise": False, "dropout": 0.0},
    "released/precondition+noise": {"dropout": 0.0},
    "released/precondition+mask": {"noise": False},
    "released/full": {},
    "algorithm1/precondition": {"noise": False, "dropout": 0.0},
    "algorithm1/full": {},
}


@pytest.fixture
def scripted(golden: dict[str, Any], monkeypatch: pytest.MonkeyPatch, fresh_kernels: None) -> None:
    """Replace the random numbers by those of the file, and send the twelve entries to the kernel."""
    xi, keep = torch.tensor(golden["xi"], dtype=torch.float64), torch.tensor(golden["keep"], dtype=torch.int32)

    def stream_key(base: Tensor, step: Any) -> Tensor:
        return torch.zeros(2, base.shape[1], dtype=torch.int32) + step

    def row(index: Tensor, key0: Any) -> tuple[Tensor, Tensor]:
        return (torch.as_tensor(key0).long() - 1).expand(index.shape), index.long()

    def keep_mask(index: Tensor, key0: Any, key1: Any, threshold: Any) -> Tensor:
        return keep[row(index, key0)] > 0

    def bits_(index: Tensor, key0: Any, key1: Any, scratch: Tensor) -> Tensor:
        return torch.where(keep_mask(index, key0, key1, 0), 2**31 - 1, -(2**31)).to(torch.int32)

    def normal(index: Tensor, key0: Any, key1: Any) -> Tensor:
        return xi[row(index, key0)]

    monkeypatch.setattr(_random, "stream_key", stream_key)
    monkeypatch.setattr(_random, "keep_mask", keep_mask)
    monkeypatch.setattr(_random, "bits_", bits_)
    monkeypatch.setattr(_random, "normal", normal)
    monkeypatch.setattr(_fused, "PACK_SHARE", 0.0)
    monkeypatch.setattr(_fused, "_WARM_UP", len(golden["theta0"]))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
def test_golden_trajectory(
    golden: dict[str, Any], scripted: None, variant: str, path: str, dtype: torch.dtype
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
