"""The nearest training pictures, by the cosine of features."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

import genie_dg
from genie_dg.data.domains import DataError
from genie_dg.data.image_folders import open_folder
from genie_dg.inference.model import Model
from genie_dg.inference.nearest import Examples

from .conftest import PictureRun


@pytest.fixture(scope="module")
def model(picture_run: PictureRun) -> Model:
    return genie_dg.load_model(picture_run.folder / "model-4.pt")


def test_a_training_picture_is_its_own_nearest(model: Model, picture_run: PictureRun) -> None:
    index = Examples(model, picture_run.data)
    assert len(index) == index.total == 36
    for place in (0, 17, 35):
        domain, at = index.samples[place]
        _, features = model.logits_and_features(model.preprocess(domain.where(at))[None])
        first, *others = index.nearest(features[0])
        assert (first.place, first.domain) == (place, domain.name)
        assert first.label == Path(domain.where(at)).parent.name
        assert first.cosine == pytest.approx(1, abs=1e-5)
        assert len(others) == 5


def test_the_order_is_that_of_the_slow_twin(model: Model, picture_run: PictureRun) -> None:
    index = Examples(model, picture_run.data)
    query = torch.randn(index.features.shape[1], generator=torch.Generator().manual_seed(0))
    cosines = []
    for domain, at in index.samples:
        _, (row,) = model.logits_and_features(model.preprocess(domain.where(at))[None])
        row, wanted = row.double(), query.double()
        cosines.append(float(row @ wanted / (row @ row).sqrt() / (wanted @ wanted).sqrt()))
    expected = sorted(range(len(cosines)), key=lambda k: -cosines[k])[:6]
    near = index.nearest(query)
    assert [one.place for one in near] == expected
    assert [one.cosine for one in near] == pytest.approx([cosines[k] for k in expected], abs=1e-5)


def test_a_large_set_is_taken_evenly_and_broken_pictures_are_told(
    model: Model, picture_run: PictureRun, tmp_path: Path
) -> None:
    few = Examples(model, picture_run.data, most=6)
    assert [(domain.name, at) for domain, at in few.samples] == [
        ("ink", 0), ("ink", 7), ("oil", 2), ("oil", 9), ("pen", 4), ("pen", 11)
    ]  # fmt: skip
    shutil.copytree(picture_run.root, tmp_path / "art")
    (tmp_path / "art" / "ink" / "cat" / "000.png").write_bytes(b"")
    index = Examples(model, open_folder(tmp_path / "art"))
    assert len(index) == len(index.features) == 35
    assert "is empty" in index.problems[0]
    for file in (tmp_path / "art").rglob("*.png"):
        file.write_bytes(b"")
    with pytest.raises(DataError, match="No picture of art can be read"):
        Examples(model, open_folder(tmp_path / "art"))
