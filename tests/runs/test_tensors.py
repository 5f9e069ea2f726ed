"""Files of tensors: what was written comes back, and nothing else does."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from genie_dg.runs.tensors import DamagedFile, intact, load_tensors, save_tensors


def test_tensors_come_back(tmp_path: Path) -> None:
    state: dict[str, Any] = {
        "weights": torch.arange(3.0),
        "step": 7,
        "name": "x",
        "nested": {"a": [1, 2.5, None]},
    }
    save_tensors(tmp_path / "a.pt", state)
    back = load_tensors(tmp_path / "a.pt")
    assert torch.equal(back.pop("weights"), state.pop("weights"))
    assert back == state
    assert list(tmp_path.iterdir()) == [tmp_path / "a.pt"]


def test_a_flipped_bit_is_refused_or_changes_nothing(tmp_path: Path) -> None:
    """The archive has dates and padding that nobody reads; every bit of weights and names counts."""
    path = tmp_path / "a.pt"
    weights = torch.randn(500, generator=torch.Generator().manual_seed(0))
    save_tensors(path, {"weights": weights})
    whole = path.read_bytes()
    refused = 0
    first = 8 * whole.index(weights.numpy().tobytes())
    inside = range(first, first + 16_000)
    for bit in [*Random(0).sample(inside, 50), *Random(0).sample(range(8 * len(whole)), 300)]:
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        try:
            state = load_tensors(path)
        except DamagedFile:
            refused += 1
        else:
            assert bit not in inside
            assert intact(path)
            assert list(state) == ["weights"]
            assert torch.equal(state["weights"], weights)
    assert refused > 200
    path.write_bytes(whole)
    assert intact(path)


def test_the_file_before_is_kept(tmp_path: Path) -> None:
    path, before = tmp_path / "a.pt", tmp_path / "before.pt"
    for step in range(3):
        save_tensors(path, {"step": step}, before)
    assert (load_tensors(path)["step"], load_tensors(before)["step"]) == (2, 1)


class _Code:
    """What a file of tensors must not be able to do."""

    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("code was run",)


def test_files_that_hold_no_tensors_are_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    whole = tmp_path / "a.pt"
    save_tensors(whole, {"weights": torch.zeros(1000)})
    (tmp_path / "cut.pt").write_bytes(whole.read_bytes()[:500])
    (tmp_path / "empty.pt").touch()
    torch.save({"x": _Code()}, tmp_path / "code.pt")
    torch.save([1, 2], tmp_path / "list.pt")
    with (tmp_path / "huge.pt").open("wb") as file:
        os.truncate(file.fileno(), 2**35)
    os.mkfifo(tmp_path / "pipe.pt")
    (tmp_path / "zero.pt").symlink_to("/dev/zero")
    (tmp_path / "loop.pt").symlink_to(tmp_path / "loop.pt")
    (tmp_path / "folder.pt").mkdir()
    for name in ("cut", "empty", "code", "list", "huge", "pipe", "zero", "loop", "folder", "missing"):
        with pytest.raises(DamagedFile, match=rf"{name}.pt cannot be read \(.+\)$"):
            load_tensors(tmp_path / f"{name}.pt")
        assert intact(tmp_path / f"{name}.pt") == (name in ("code", "list"))
    assert "code was run" not in capfd.readouterr().out
