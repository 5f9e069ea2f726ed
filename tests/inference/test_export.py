"""Exported models say what the original says, in batches of any size; what differs is not kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor

import genie_dg
from genie_dg.bench.keep import model_file
from genie_dg.check import InputError
from genie_dg.files import FileError
from genie_dg.inference import export as module
from genie_dg.inference.export import EXPORT_FORMS, TOLERANCE, export
from genie_dg.inference.model import Model
from genie_dg.runs.config import RunConfig
from tests.data.pictures import KINDS, write
from tests.versions import ONNX

from .conftest import PictureRun
from .test_model import RECORD, tensors


@pytest.fixture(scope="module")
def model(picture_run: PictureRun) -> Model:
    return genie_dg.load_model(picture_run.folder / "model-4.pt")


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("new")
    return [write(folder / name, k, mode) for k, (name, mode) in enumerate(KINDS)]


def images_of(model: Model, pictures: list[Path]) -> Tensor:
    return torch.stack([model.preprocess(path) for path in pictures])


def test_onnx_runs_in_onnxruntime(model: Model, pictures: list[Path], tmp_path: Path) -> None:
    path = tmp_path / "a.onnx"
    done = export(model, "onnx", path, pictures)
    assert done.real
    assert done.pictures == len(pictures)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    images = images_of(model, pictures)
    largest = 0.0
    for size in (1, 2, len(pictures)):
        (got,) = session.run(None, {"images": images[:size].numpy()})
        largest = max(largest, float(np.abs(got - model.logits(images[:size]).numpy()).max()))
    assert largest < 1e-4
    assert done.difference < 1e-4
    loaded = onnx.load(path)
    onnx.checker.check_model(loaded)
    described = json.loads({one.key: one.value for one in loaded.metadata_props}["genie_dg"])
    assert described["classes"] == ["cat", "dog"]
    assert (described["size"], described["mean"][0]) == (32, 0.485)
    assert [file.name for file in tmp_path.iterdir()] == ["a.onnx"]


def test_random_pictures_stand_in(model: Model, tmp_path: Path) -> None:
    done = export(model, "safetensors", tmp_path / "a.safetensors")
    assert (done.real, done.pictures) == (False, 8)


def test_an_export_that_differs_is_not_kept(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slightly_wrong(original: Model, path: Path) -> Any:
        path.write_bytes(b"weights")
        return lambda images: (
            original.logits(images) + 2 * TOLERANCE * original.logits(images).abs().clamp(min=1)
        )

    monkeypatch.setitem(EXPORT_FORMS, "wrong", slightly_wrong)
    with pytest.raises(FileError, match="differs from the original by"):
        export(model, "wrong", tmp_path / "a.wrong")
    assert list(tmp_path.iterdir()) == []


def test_what_a_form_cannot_do_is_one_sentence(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("an operator is not supported\nsecond line")

    monkeypatch.setattr(module.torch.onnx, "export", fails)
    with pytest.raises(
        InputError, match=r"cannot be written as onnx \(RuntimeError: an operator .*supported\)"
    ):
        export(model, "onnx", tmp_path / "a.onnx")
    with pytest.raises(InputError, match="did you mean 'onnx'"):
        export(model, "onxx", tmp_path / "a")
    with pytest.raises(InputError, match="no is not a folder"):
        export(model, "safetensors", tmp_path / "no" / "a.safetensors")


@pytest.mark.slow
@ONNX
@pytest.mark.parametrize("backbone", ["mlp", "resnet18", "resnet50", "efficientnet_lite0", "timm/resnet10t"])
def test_every_kind_of_backbone(backbone: str, tmp_path: Path) -> None:
    from genie_dg.bench.assemble import assemble

    data = tensors(3, 32, 6)
    parts = assemble(RunConfig("tiny", (2,), backbone=backbone, steps=1), data)
    model_file(parts, RECORD).save(tmp_path / "model.pt")
    original = genie_dg.load_model(tmp_path / "model.pt")
    done = export(original, "onnx", tmp_path / "out.onnx")
    assert done.difference <= 1e-4 * max(1.0, float(original.logits(torch.randn(4, 3, 32, 32)).abs().max()))
