"""All four paths against the plain-Python twin: 100 random steps, every switch, and after save and load."""

from __future__ import annotations

import io
import math
from typing import Any

import pytest
import torch

from genie_dg import GENIE
from genie_dg.optim import _device
from tests.oracle import genie as oracle

PATHS = {"native": {}, "loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
SHAPES = [(3, 4), (5,), (), (2, 1, 3)]
OPTIONS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "algorithm1": {"formulation": "algorithm1", "noise_std": 0.3},
    "momentum": {"precondition": False},
    "coupled": {"weight_decay": 0.1, "noise": False},
    "decoupled": {"weight_decay": 0.1, "decoupled_weight_decay": True, "dropout": 0.0},
    "ascent": {"maximize": True, "beta": 0.8, "weight_decay": 0.05},
}
COMPILED = ("defaults", "algorithm1", "ascent")
"""Whose kernels are compiled in every run of the tests; each takes seconds, so the others are slow tests."""


def twins(params: list[torch.nn.Parameter], options: dict[str, Any]) -> list[oracle.Twin]:
    decoupled = options.get("decoupled_weight_decay", False)
    decay = options.get("weight_decay", 0.0)
    return [
        oracle.Twin(
            p.detach().double().flatten().tolist(),
            beta=options.get("beta", 0.95),
            p=options.get("dropout", 0.4),
            sigma=options.get("noise_std", 0.1),
            formulation=options.get("formulation", "released"),
            precondition=options.get("precondition", True),
            noise=options.get("noise", True),
            mask=options.get("dropout", 0.4) > 0,
            l2=0.0 if decoupled else decay,
            shrink=decay if decoupled else 0.0,
        )
        for p in params
    ]


def draws(index: int, step: int, n: int, p: float, seed: int) -> tuple[list[float], list[float]]:
    """Normal numbers and mask from the integer twin of the hash."""
    key = oracle.key(seed, step, index)
    uniform = torch.tensor([oracle.uniform(i, key) for i in range(n)], dtype=torch.float64)
    return (torch.erfinv(uniform) * math.sqrt(2)).tolist(), [float(oracle.keep(i, key, p)) for i in range(n)]


@pytest.mark.filterwarnings("ignore:GENIE. at step 50 no matrix")  # these steps are meant to be short
@pytest.mark.parametrize("scale", [0.05, 3.0], ids=["calm", "live"])
@pytest.mark.parametrize(
    ("path", "name"),
    [
        pytest.param(
            path,
            name,
            marks=[pytest.mark.slow] if path == "fused" and name not in COMPILED else [],
            id=f"{path}-{name}",
        )
        for path in PATHS
        for name in OPTIONS
    ],
)
def test_hundred_steps(path: str, name: str, scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_device, "PACKED_SIZE", 1)  # the kernel, however small the tensor
    options = OPTIONS[name]
    sign = -1.0 if options.get("maximize") else 1.0
    generator = torch.Generator().manual_seed(3)
    params = [torch.nn.Parameter(torch.randn(s, generator=generator)) for s in SHAPES]
    slow = twins(params, options)
    optimizer = GENIE(params, seed=11, **options, **PATHS[path])
    for step in range(1, 101):
        if step == 60:  # through a file and back
            file = io.BytesIO()
            torch.save(optimizer.state_dict(), file)
            file.seek(0)
            optimizer = GENIE(params, lr=9.0, **PATHS[path])
            optimizer.load_state_dict(torch.load(file, weights_only=True))
        for index, (p, twin) in enumerate(zip(params, slow, strict=True)):
            p.grad = torch.randn(p.shape, generator=generator) * scale + 0.5 * scale
            xi, keep = draws(index, step, p.numel(), options.get("dropout", 0.4), 11)
            twin.step([sign * g for g in p.grad.double().flatten().tolist()], xi, keep)
        optimizer.step()
    for p, twin in zip(params, slow, strict=True):
        expected = torch.tensor(twin.theta, dtype=torch.float64).view(p.shape)
        torch.testing.assert_close(p.detach().double(), expected, rtol=2e-5, atol=2e-5)


def test_listing_agrees_after_the_first_step() -> None:
    """The paper's listing, without noise and mask, from step 2 on (its first step divides 0 by 0)."""
    from tests.oracle.listing import Listing

    generator = torch.Generator().manual_seed(0)
    ours = torch.nn.Parameter(torch.randn(50, generator=generator, dtype=torch.float64))
    theirs = torch.nn.Parameter(ours.detach().clone())
    optimizer, listing = GENIE([ours], noise=False, dropout=0.0, foreach=False), Listing([theirs], p=0.0)
    for step in range(20):
        ours.grad = torch.randn(50, generator=generator, dtype=torch.float64)
        theirs.grad = ours.grad.clone()
        optimizer.step()
        listing.step(noise=False)
        if step == 0:
            listing.weights[0].copy_(ours.detach())
            theirs.detach().copy_(ours.detach())
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
