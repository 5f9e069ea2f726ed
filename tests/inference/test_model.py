"""Predictions are those of the training side, to the bit, for pictures in any form."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import genie_dg
from genie_dg.algorithms.registry import ALGORITHMS
from genie_dg.bench.assemble import EVALUATION_BATCH, Parts, assemble
from genie_dg.bench.checks import weights_digest
from genie_dg.bench.keep import model_file
from genie_dg.bench.options import RunOptions
from genie_dg.bench.train import take_steps
from genie_dg.data.domains import DataError, DomainSet, FileDomain, TensorDomain
from genie_dg.data.loaders import Evaluation
from genie_dg.files import FileError
from genie_dg.inference.model import Model
from genie_dg.models.classifier import build_network
from genie_dg.runs.config import RunConfig
from genie_dg.runs.record import Record
from tests.data.pictures import KINDS, write

from .conftest import PictureRun

RECORD = Record(0, 0.0, None, None, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Pictures that no domain has, in every mode: JPEG, PNG, grey, CMYK, palette, EXIF-rotated and others."""
    folder = tmp_path_factory.mktemp("strangers")
    return [write(folder / name, 500 + k, mode) for k, (name, mode) in enumerate(KINDS)]


@torch.no_grad()
def training_side(
    parts: Parts, domain: FileDomain | TensorDomain, batch_size: int = EVALUATION_BATCH
) -> Tensor:
    """Logits as `genie_dg.bench.evaluate.score` computes them."""
    parts.algorithm.eval()
    batches = Evaluation(domain, size=parts.config.image_size, batch_size=batch_size)
    return torch.cat([parts.algorithm.predict(images) for images, _ in batches])


def as_domain(paths: list[Path]) -> FileDomain:
    return FileDomain("new", Path("/"), [str(path) for path in paths], np.zeros(len(paths), dtype=np.int64))


@pytest.mark.parametrize("batch_size", [EVALUATION_BATCH, 5])
def test_probabilities_of_files_are_bit_equal(
    picture_run: PictureRun, strangers: list[Path], batch_size: int
) -> None:
    model = genie_dg.load_model(picture_run.folder / "model-4.pt")  # the last record: the weights of `parts`
    expected = training_side(picture_run.parts, as_domain(strangers), batch_size)
    assert torch.equal(model.probabilities(strangers, batch_size), torch.softmax(expected, 1))
    answers = model.predict(strangers, batch_size)
    assert [one.label for one in answers] == [model.classes[k] for k in expected.argmax(1)]
    for one, row in zip(answers, torch.softmax(expected, 1), strict=True):
        assert dict(one.top(2)) == dict(zip(model.classes, row.tolist(), strict=True))
        assert one.probability == one.probabilities[0] == max(one.probabilities)


def test_every_form_of_a_picture_is_the_same_picture(picture_run: PictureRun, strangers: list[Path]) -> None:
    model, path = genie_dg.load_model(picture_run.folder / "model-4.pt"), strangers[0]
    with Image.open(path) as file:
        picture = file.convert("RGB")
    pixels = np.array(picture)
    forms = [path, str(path), picture, pixels, torch.from_numpy(pixels).permute(2, 0, 1)]
    expected = model.probabilities([path], 1)
    assert model.preprocess(path).shape == (3, 32, 32)
    for form in forms:
        assert torch.equal(model.preprocess(form), model.preprocess(path))
        assert torch.equal(model.probabilities([form], 1), expected)
    assert model.predict(path) == model.predict([path])
    assert torch.equal(model.module(model.preprocess(path)[None]).softmax(1), expected)


def test_batches_go_on_without_broken_pictures(picture_run: PictureRun, tmp_path: Path) -> None:
    model = genie_dg.load_model(picture_run.folder / "model-4.pt")
    good = [write(tmp_path / f"{k}.png", k) for k in range(5)]
    (bad := tmp_path / "bad.png").write_bytes(b"")
    batches = list(model.batches([good[0], bad, *good[1:], bad], lambda path: path, 2))
    assert [batch.items for batch in batches] == [good[:2], good[2:4], good[4:]]
    assert [len(batch.problems) for batch in batches] == [1, 0, 1]
    assert "is empty (0 bytes)" in batches[0].problems[0][1]
    expected = torch.cat([model.probabilities(good[k : k + 2]) for k in (0, 2, 4)])
    assert torch.equal(torch.cat([batch.logits for batch in batches]).softmax(1), expected)


@pytest.mark.parametrize(
    "picture", [torch.zeros(3, 8, 8), np.zeros((8, 8, 5), dtype=np.uint8), np.zeros(4, dtype=np.uint8), 7]
)
def test_what_is_not_a_picture_is_refused(picture_run: PictureRun, picture: object) -> None:
    model = genie_dg.load_model(picture_run.folder / "model-4.pt")
    with pytest.raises(DataError, match=r"Got .* as a picture; expected a path"):
        model.predict([picture])  # type: ignore[list-item]


def tensors(channels: int = 1, size: int = 8, each: int = 12) -> DomainSet:
    generator = torch.Generator().manual_seed(0)
    shape = each, channels, size, size
    domains = [
        TensorDomain(name, torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8), labels)
        for name in ("a", "b", "c")
        for labels in [np.arange(each) % 3]
    ]
    return DomainSet("tiny", ("x", "y", "z"), tuple(domains))


def model_of(config: RunConfig, data: DomainSet, folder: Path, steps: bool = True) -> tuple[Parts, Model]:
    parts = assemble(config, data)
    with torch.random.fork_rng():
        for _ in take_steps(parts) if steps else ():
            pass
    path = folder / "model.pt"
    model_file(parts, RECORD).save(path)
    return parts, genie_dg.load_model(path)


OWN_PREDICT = ("ERM", "MTL", "ARM", "URM", "ADRMX", "ERM++")
"""Those that predict in a way of their own, and the plainest; the others are slow in sum."""


@pytest.mark.parametrize(
    "name", [name if name in OWN_PREDICT else pytest.param(name, marks=pytest.mark.slow) for name in ALGORITHMS]
)
@pytest.mark.filterwarnings("ignore::genie_dg.bench.assemble.DegenerateWarning")
def test_every_algorithm_is_built_again_from_its_file(name: str, tmp_path: Path) -> None:
    data = tensors()
    config = RunConfig("tiny", (2,), name, "adam", batch_size=4, steps=2, checkpoint_every=2)
    parts, model = model_of(config, data, tmp_path)
    samples = list(data.domains[2].images)  # type: ignore[attr-defined]
    expected = training_side(parts, data.domains[2])  # type: ignore[arg-type]
    assert torch.equal(model.probabilities(samples), torch.softmax(expected, 1))


def test_published_weights_are_not_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of weights that the run started from is gone, and torch.hub has none: it is built anyway."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "hub"))
    weights = tmp_path / "start.pt"
    torch.save(build_network("resnet18", 3, 3, 32).featurizer.state_dict(), weights)
    data = tensors(3, 32, 6)
    config = RunConfig(
        "tiny", (2,), backbone="resnet18", pretrained=True, weights_digest=weights_digest(str(weights)), steps=1
    )
    parts = assemble(config, data, RunOptions(weights=str(weights)))
    model_file(parts, RECORD).save(tmp_path / "model.pt")
    weights.unlink()
    model = genie_dg.load_model(tmp_path / "model.pt")
    expected = training_side(parts, data.domains[2])  # type: ignore[arg-type]
    assert torch.equal(model.probabilities(list(data.domains[2].images)), torch.softmax(expected, 1))  # type: ignore[attr-defined]
    assert model.config == config


def test_weights_that_do_not_fit_are_refused(picture_run: PictureRun, tmp_path: Path) -> None:
    other = replace(picture_run.config, backbone="mlp")
    replace(model_file(picture_run.parts, RECORD), config=other).save(tmp_path / "model.pt")
    with pytest.raises(FileError, match=r"do not fit ERM on mlp"):
        genie_dg.load_model(tmp_path / "model.pt")
