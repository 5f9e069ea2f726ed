"""Exported models say what the original says, in batches of any size; what differs is not kept."""

from __future__ import annotations

import json
import subprocess
import sys
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
from genie_dg.inference.export import EXPORT_FORMS, TOLERANCE, Form, export
from genie_dg.inference.model import Model
from genie_dg.runs.config import RunConfig
from tests.data.pictures import KINDS, write
from tests.versions import ONNX

from .conftest import PictureRun
from .test_model import RECORD, model_of, tensors


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


def test_torchscript_runs_without_this_package(model: Model, pictures: list[Path], tmp_path: Path) -> None:
    path, images = tmp_path / "a.pt", images_of(model, pictures)
    done = export(model, "torchscript", path, pictures)
    assert done.difference < 1e-4
    torch.save(images, tmp_path / "images.pt")
    code = (
        "import sys, warnings; warnings.simplefilter('ignore'); import torch; torch.set_num_threads(1)\n"
        "extra = {'genie_dg.json': ''}; model = torch.jit.load(sys.argv[1], _extra_files=extra)\n"
        "torch.save(model(torch.load(sys.argv[2])).detach(), sys.argv[3])\n"
        "print(extra['genie_dg.json'].decode())\n"
        "assert not any(name.startswith('genie_dg') for name in sys.modules)"
    )
    words = [str(tmp_path / name) for name in ("a.pt", "images.pt", "logits.pt")]
    said = subprocess.run([sys.executable, "-c", code, *words], check=True, capture_output=True, text=True)
    assert json.loads(said.stdout)["classes"] == ["cat", "dog"]
    torch.testing.assert_close(
        torch.load(tmp_path / "logits.pt", weights_only=True), model.logits(images), atol=1e-4, rtol=0
    )


def test_random_pictures_stand_in(model: Model, tmp_path: Path) -> None:
    done = export(model, "safetensors", tmp_path / "a.safetensors")
    assert (done.real, done.pictures, done.batch_matters) == (False, 8, False)


def test_an_export_that_differs_is_not_kept(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slightly_wrong(original: Model, path: Path) -> Any:
        path.write_bytes(b"weights")
        return lambda images: (
            original.logits(images) + 2 * TOLERANCE * original.logits(images).abs().clamp(min=1)
        )

    monkeypatch.setitem(EXPORT_FORMS, "wrong", Form(slightly_wrong, ".wrong"))
    with pytest.raises(FileError, match="differs from the original by"):
        export(model, "wrong", tmp_path / "a.wrong")
    assert list(tmp_path.iterdir()) == []


def test_what_a_form_cannot_do_is_one_sentence(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("an operator is not supported\nsecond line")

    monkeypatch.setattr(module.torch.jit, "trace", fails)
    with pytest.raises(
        InputError, match=r"cannot be written as torchscript \(RuntimeError: an operator .*supported\)"
    ):
        export(model, "torchscript", tmp_path / "a.pt")
    with pytest.raises(InputError, match="did you mean 'onnx'"):
        export(model, "onxx", tmp_path / "a")
    with pytest.raises(InputError, match="no is not a folder"):
        export(model, "safetensors", tmp_path / "no" / "a.safetensors")


def test_a_model_that_adapts_to_its_batch_says_so(tmp_path: Path) -> None:
    config = RunConfig("tiny", (2,), "MTL", "adam", batch_size=4, steps=2, checkpoint_every=2)
    _, mtl = model_of(config, tensors(), tmp_path)
    done = export(mtl, "torchscript", tmp_path / "mtl.pt")
    assert done.batch_matters
    assert done.difference < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("form", [pytest.param("onnx", marks=ONNX), "torchscript"])
@pytest.mark.parametrize("backbone", ["mlp", "resnet18", "resnet50", "efficientnet_lite0", "timm/resnet10t"])
def test_every_kind_of_backbone(backbone: str, form: str, tmp_path: Path) -> None:
    from genie_dg.bench.assemble import assemble

    data = tensors(3, 32, 6)
    parts = assemble(RunConfig("tiny", (2,), backbone=backbone, steps=1), data)
    model_file(parts, RECORD).save(tmp_path / "model.pt")
    original = genie_dg.load_model(tmp_path / "model.pt")
    done = export(original, form, tmp_path / "out")
    assert done.difference <= 1e-4 * max(1.0, float(original.logits(torch.randn(4, 3, 32, 32)).abs().max()))
