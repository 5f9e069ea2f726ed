"""The native path: the loop's weights, the same for any number of threads, and its library on disk."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor
from torch.nn import Parameter

from genie_dg import GENIE, _c_library
from genie_dg.optim import _native, _plan
from tests.oracle import genie as oracle

ROOT = Path(__file__).parents[2]
SHAPES = [(), (1,), (0,), (7,), (64,), (65,), (3, 5), (255, 257), (65_536,), (65_537,), (131_071,)]

pytestmark = pytest.mark.skipif(_native.library() is None, reason="there is no C compiler")


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A library that has not been looked for, and an empty cache; the folder that it is kept in."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    _native.library.cache_clear()
    yield tmp_path / "genie-dg" / "native"
    _native.library.cache_clear()


def gradients(shapes: list[tuple[int, ...]], steps: int, scale: float) -> Iterator[list[Tensor]]:
    generator = torch.Generator().manual_seed(steps)
    for _ in range(steps):
        yield [torch.randn(s, generator=generator) * scale for s in shapes]


def train(
    shapes: list[tuple[int, ...]],
    scale: float,
    steps: int = 4,
    spoil: Callable[[int, list[Tensor]], None] | None = None,
    **options: Any,
) -> tuple[list[Parameter], GENIE]:
    generator = torch.Generator().manual_seed(0)
    params = [Parameter(torch.randn(s, generator=generator)) for s in shapes]
    optimizer = GENIE(params, seed=5, **options)
    for step, grads in enumerate(gradients(shapes, steps, scale)):
        if spoil is not None:
            spoil(step, grads)
        for p, g in zip(params, grads, strict=True):
            p.grad = g
        optimizer.step()
    return params, optimizer


def assert_same(left: list[Parameter], right: list[Parameter], tolerance: float) -> None:
    """Equal to a share of the largest entry: steps cancel, so single entries have no relative error."""
    for a, b in zip(left, right, strict=True):
        finite = b.detach()[torch.isfinite(b)]
        largest = float(finite.abs().max()) if finite.numel() else 1.0
        torch.testing.assert_close(a, b, rtol=0, atol=tolerance * max(largest, 1.0), equal_nan=True)


@pytest.mark.parametrize("formulation", ["released", "algorithm1"])
@pytest.mark.parametrize("noise", [True, False], ids=["noise", "no noise"])
def test_calm_entries_are_those_of_the_loop_in_every_bit(formulation: str, noise: bool) -> None:
    options: dict[str, Any] = {"formulation": formulation, "noise": noise, "weight_decay": 0.01}
    native, _ = train(SHAPES, 1e-3, 10, **options)
    loop, _ = train(SHAPES, 1e-3, 10, foreach=False, **options)
    assert all(torch.equal(a, b) for a, b in zip(native, loop, strict=True))


@pytest.mark.parametrize("scale", [1e-3, 0.3, 3.0], ids=["calm", "mixed", "live"])
def test_threads_do_not_change_a_bit(scale: float) -> None:
    shapes = [*SHAPES, (300, 1000)]
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(train(shapes, scale)[0])
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("dropout", [0.1, 0.4, 0.9])
def test_mask_is_that_of_the_specification(dropout: float) -> None:
    """An entry keeps its value where the integer twin of the hash says "drop", and nowhere else."""
    params = [Parameter(torch.zeros(s)) for s in ((3, 5), (), (65_536 + 300,))]
    optimizer = GENIE(params, noise=False, dropout=dropout, seed=9)
    for step in (1, 2):
        before = [p.detach().clone() for p in params]
        for p in params:
            p.grad = torch.full_like(p, 1e-2)
        optimizer.step()
        for index, (p, old) in enumerate(zip(params, before, strict=True)):
            key = oracle.key(9, step, index)
            last = range(max(p.numel() - 400, 0), p.numel())  # across the border of two chunks
            kept = [oracle.keep(i, key, dropout) for i in last]
            assert (p != old).flatten()[last.start :].tolist() == kept


def test_autograd_sees_the_change() -> None:
    p = Parameter(torch.ones(3))
    loss = (p * p).sum()
    p.grad = torch.ones(3)
    optimizer = GENIE([p])
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize(
    "options", [{"foreach": True}, {"foreach": False}, {"fused": False}, {"capturable": True}]
)
def test_a_choice_of_path_is_kept(options: dict[str, Any]) -> None:
    p = Parameter(torch.ones(3))
    p.grad = torch.ones(3)
    with patch.object(_plan, "NativePlan") as native:
        GENIE([p], **options).step()
        native.assert_not_called()


class TestLibrary:
    def test_is_built_once_and_kept(self, fresh: Path) -> None:
        assert _native.library() is not None
        (kept,) = fresh.iterdir()
        _native.library.cache_clear()
        with patch.object(_c_library, "_build", side_effect=AssertionError):
            assert _native.library() is not None
        assert list(fresh.iterdir()) == [kept]

    @pytest.mark.parametrize("damage", ["empty", "text", "unreadable"])
    def test_damaged_file_is_replaced(self, fresh: Path, damage: str) -> None:
        assert _native.library() is not None
        (kept,) = fresh.iterdir()
        kept.unlink()  # the loaded file stays whole
        if damage == "unreadable":
            kept.mkdir()
        else:
            kept.write_bytes(b"" if damage == "empty" else b"not a library")
        _native.library.cache_clear()
        assert _native.library() is not None

    @pytest.mark.parametrize("reason", ["no compiler", "broken compiler", "switched off"])
    def test_without_it_the_path_is_foreach(
        self, fresh: Path, reason: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if reason == "no compiler":
            monkeypatch.setenv("PATH", "")
            monkeypatch.delenv("CC", raising=False)
        elif reason == "broken compiler":
            monkeypatch.setenv("CC", "false")
        else:
            monkeypatch.setenv("GENIE_DG_NATIVE", "0")
        assert _native.library() is None
        p = Parameter(torch.ones(3))
        p.grad = torch.ones(3)
        with patch.object(_plan, "DevicePlan") as foreach:
            GENIE([p]).step()
            foreach.assert_called_once()

    def test_two_processes_at_once(self, fresh: Path) -> None:
        code = (
            "import torch; from genie_dg import GENIE; from genie_dg.optim import _native\n"
            "p = torch.nn.Parameter(torch.ones(3)); p.grad = torch.ones(3); GENIE([p]).step()\n"
            "assert _native.library() is not None; print(p.tolist())"
        )
        env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        command = [sys.executable, "-c", code]
        both = [subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        first, second = (process.communicate(timeout=120)[0] for process in both)
        assert [process.returncode for process in both] == [0, 0]
        assert first == second != ""
        assert len(list(fresh.iterdir())) == 1

    def test_every_set_of_flags_gives_the_same_bits(self, fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """With and without the processor's own instructions and OpenMP."""
        results = []
        for attempt in _c_library._ATTEMPTS:
            monkeypatch.setattr(_c_library, "_ATTEMPTS", (attempt,))
            _native.library.cache_clear()
            if _native.library() is not None:
                results.append(train([(300, 7), (70_000,)], 1.0)[0])
        assert len(results) >= 2
        for other in results[1:]:
            assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))
