"""Model files: what is read, and one sentence for what is not a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from genie_dg.check import InputError
from genie_dg.files import FileError
from genie_dg.inference._file import read_model_file, write_safetensors
from genie_dg.runs.tensors import load_tensors, save_tensors

from .conftest import PictureRun


def test_safetensors_keep_everything(picture_run: PictureRun, tmp_path: Path) -> None:
    stored = read_model_file(picture_run.folder / "model-4.pt")
    write_safetensors(tmp_path / "a.safetensors", stored)
    again = read_model_file(tmp_path / "a.safetensors")
    assert again.facts() == stored.facts()
    assert again.config == stored.config
    assert again.record == stored.record
    assert all(torch.equal(again.algorithm[name], tensor) for name, tensor in stored.algorithm.items())


def refused(values: Any, tmp_path: Path) -> str:
    save_tensors(tmp_path / "model.pt", values)
    with pytest.raises(FileError) as error:
        read_model_file(tmp_path / "model.pt")
    return str(error.value)


def test_what_is_not_a_model_is_refused_in_a_sentence(picture_run: PictureRun, tmp_path: Path) -> None:
    good = load_tensors(picture_run.folder / "model-4.pt")
    assert "did not name the classes" in refused({"algorithm": {}, "config": good["config"]}, tmp_path)
    assert "not a file of weights of a run" in refused({"numbers": [1, 2]}, tmp_path)
    assert "not a whole model file" in refused({**good, "record": {"step": 0}}, tmp_path)
    assert "not a file of weights of a run" in refused({**good, "config": {"dataset": "x"}}, tmp_path)
    (tmp_path / "torn.pt").write_bytes((picture_run.folder / "model-4.pt").read_bytes()[:500])
    (tmp_path / "torn.safetensors").write_bytes(b"\x00" * 64)
    for name in ("torn.pt", "torn.safetensors"):
        with pytest.raises(FileError, match="cannot be read"):
            read_model_file(tmp_path / name)
    with pytest.raises(InputError, match="is not a file"):
        read_model_file(tmp_path / "nothing.pt")


class Harmful:
    """Runs code where it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("code in a model file was run",)


def test_code_in_a_file_is_never_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "cannot be read" in refused({"format": 1, "algorithm": Harmful()}, tmp_path)
    assert capsys.readouterr().out == ""
