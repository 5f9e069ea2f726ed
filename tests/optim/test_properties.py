"""Properties that hold for every shape, dtype, memory format and size of gradient."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from genie_dg import GENIE
from genie_dg.optim import _device

PATHS = {"native": {}, "loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
SHAPES = [(), (1,), (0,), (7,), (3, 5), (2, 3, 4, 5), (1, 1, 3), (64, 33), (70_000,)]


@pytest.fixture(autouse=True, scope="module")
def kernels_for_small_tensors() -> Any:
    """Send small tensors to the kernel too."""
    before = _device.PACKED_SIZE
    _device.PACKED_SIZE = 1
    yield
    _device.PACKED_SIZE = before


def arrange(x: Tensor, layout: str) -> Tensor:
    """The same values in another memory layout."""
    if layout == "channels_last" and x.dim() == 4:
        return x.contiguous(memory_format=torch.channels_last)
    if layout == "transposed" and x.dim() >= 2:
        return x.transpose(0, 1).contiguous().transpose(0, 1)
    if layout == "strided" and x.dim() >= 1:
        return torch.stack([x, torch.zeros_like(x)], dim=-1)[..., 0]
    return x


def gradient(shape: tuple[int, ...], scale: float, steady: bool, dtype: torch.dtype, seed: int) -> Tensor:
    """Finite gradients of about the given size (the largest finite number where dtype ends before it)."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(shape, generator=generator, dtype=torch.float64)
    wild = (noise * 0.01 + 1.0 if steady else noise) * scale
    limit = torch.finfo(dtype).max
    return wild.clamp(-limit, limit).to(dtype)


def cases(paths: list[str], dtypes: list[torch.dtype], formulations: list[str]) -> Any:
    """Anything that the arguments of `stay_finite` may be."""
    return given(
        path=st.sampled_from(paths),
        shape=st.sampled_from(SHAPES),
        dtype=st.sampled_from(dtypes),
        layout=st.sampled_from(["contiguous", "channels_last", "transposed", "strided"]),
        exponents=st.lists(st.integers(-30, 30), min_size=1, max_size=6),
        steady=st.booleans(),
        formulation=st.sampled_from(formulations),
        seed=st.integers(0, 2**16),
    )


@settings(max_examples=60, deadline=None, derandomize=True)
@cases(["native", "loop", "foreach"], DTYPES, ["released", "algorithm1"])
def test_finite_gradients_keep_everything_finite(**case: Any) -> None:
    stay_finite(**case)


@settings(max_examples=20, deadline=None, derandomize=True)
@cases(["fused"], [torch.float16], ["released"])  # each pair is a kernel to compile; the slow test has all
def test_finite_gradients_in_compiled_kernels(**case: Any) -> None:
    stay_finite(**case)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@cases(list(PATHS), DTYPES, ["released", "algorithm1"])
def test_finite_gradients_in_every_path(**case: Any) -> None:
    stay_finite(**case)


def stay_finite(
    path: str,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    layout: str,
    exponents: list[int],
    steady: bool,
    formulation: str,
    seed: int,
) -> None:
    """Parameters and moments are finite, in the dtype of the parameters, after every step."""
    p = torch.nn.Parameter(arrange(gradient(shape, 1.0, False, dtype, seed), layout))
    optimizer = GENIE([p], formulation=formulation, **PATHS[path])
    for i, exponent in enumerate(exponents):
        p.grad = gradient(shape, 10.0**exponent, steady, dtype, seed + i)
        optimizer.step()
        assert torch.isfinite(p).all()
        for name in ("exp_avg", "exp_avg_sq"):
            assert torch.isfinite(optimizer.state[p][name]).all(), name
        assert p.dtype == dtype
        assert optimizer.state[p]["exp_avg"].dtype == dtype


@pytest.mark.filterwarnings("ignore:GENIE. at step 25 .* explode")  # they do
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_largest_gradients_that_exist(path: str, dtype: torch.dtype) -> None:
    largest = torch.finfo(dtype).max
    p = torch.nn.Parameter(torch.linspace(-1, 1, 64, dtype=torch.float64).to(dtype))
    optimizer = GENIE([p], lr=1.0, **PATHS[path])
    for step in range(30):
        generator = torch.Generator().manual_seed(step)
        wild = torch.randn(64, generator=generator).sign().to(dtype) * largest
        p.grad = wild.abs() if step % 3 else wild
        optimizer.step()
        assert torch.isfinite(p).all(), step
        assert all(torch.isfinite(x).all() for x in optimizer.state[p].values()), step


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("scale", [1e-3, 5.0], ids=["calm", "live"])
@pytest.mark.parametrize("path", PATHS)
def test_one_bad_entry_changes_that_entry_only(path: str, scale: float, bad: float) -> None:
    """... and becomes NaN itself, as it does in torch.optim.Adam."""

    def train(spoil: bool) -> Tensor:
        generator = torch.Generator().manual_seed(5)
        p = torch.nn.Parameter(torch.randn(40, 10, generator=generator))
        optimizer = GENIE([p], **PATHS[path])
        for step in range(4):
            p.grad = torch.randn(p.shape, generator=generator) * scale
            if spoil and step == 1:
                p.grad[3, 7] = bad
            if not spoil and step >= 1:
                # kappa counts finite entries only: the clean run has to do without that entry as well
                optimizer.state[p]["exp_avg"][3, 7] = float("nan")
            optimizer.step()
        return p.detach()

    spoilt, clean = train(True), train(False)
    assert torch.isnan(spoilt[3, 7])
    spoilt[3, 7] = clean[3, 7] = 0.0
    assert torch.isfinite(spoilt).all()
    assert torch.equal(spoilt, clean)
    if scale < 1:  # no noise: the bad entry has no way to reach any other
        torch.testing.assert_close(spoilt, train_without_spoiling(path, scale), rtol=0, atol=0)


def train_without_spoiling(path: str, scale: float) -> Tensor:
    generator = torch.Generator().manual_seed(5)
    p = torch.nn.Parameter(torch.randn(40, 10, generator=generator))
    optimizer = GENIE([p], **PATHS[path])
    for _ in range(4):
        p.grad = torch.randn(p.shape, generator=generator) * scale
        optimizer.step()
    result = p.detach()
    result[3, 7] = 0.0
    return result


@pytest.mark.parametrize("layout", ["channels_last", "transposed", "strided"])
@pytest.mark.parametrize("path", PATHS)
def test_memory_layout_does_not_change_the_result(path: str, layout: str) -> None:
    """Element indices are logical: row-major, whatever the strides. Gradients may have strides of their own."""
    results = []
    for kind in ("contiguous", layout):
        generator = torch.Generator().manual_seed(0)
        p = torch.nn.Parameter(arrange(torch.randn(4, 6, 3, 5, generator=generator), kind))
        optimizer = GENIE([p], **PATHS[path])
        for step in range(5):
            grad = torch.randn(p.shape, generator=generator) * (1e-3 if step % 2 else 2.0)
            p.grad = arrange(grad, kind if step % 2 else "contiguous")
            optimizer.step()
        results.append(p.detach().contiguous())
    assert torch.equal(*results)


@pytest.mark.parametrize("before", [torch.float32, torch.bfloat16])
def test_moments_that_a_narrower_dtype_cannot_hold_saturate(before: torch.dtype) -> None:
    """The model becomes float16 between two steps; half of the largest number is left after a step of zeros."""
    p = torch.nn.Parameter(torch.ones(3, dtype=before))
    optimizer = GENIE([p], beta=0.5)
    p.grad = torch.full_like(p, 1e3)
    optimizer.step()
    p.grad = None
    p.data = p.data.half()
    p.grad = torch.zeros_like(p)
    optimizer.step()
    assert optimizer.state[p]["exp_avg_sq"].tolist() == [torch.finfo(torch.float16).max / 2] * 3
