"""Bytes become what a network sees with the same bits, wherever and in whichever layout that happens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torchvision.transforms import functional as TF

from genie_dg.data.augment import Recipe
from genie_dg.data.cache import EvalSpec, TrainSpec, open_cache
from genie_dg.data.domains import FileDomain, TensorDomain
from genie_dg.data.image_folders import open_folder
from genie_dg.data.loaders import Evaluation, Training
from genie_dg.data.place import Destination, Scale, is_normalised
from genie_dg.data.splits import Sampler
from genie_dg.facts import IMAGENET_MEAN, IMAGENET_STD
from tests.data.pictures import folder

EVERY_BYTE = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16).repeat(2, 3, 1, 1)
PLACES = [
    Destination(layout=layout, as_bytes=as_bytes)
    for layout in (torch.contiguous_format, torch.channels_last)
    for as_bytes in (False, True)
]


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("normalise", [True, False])
def test_every_byte_is_scaled_as_torchvision_does(layout: torch.memory_format, normalise: bool) -> None:
    wanted = EVERY_BYTE.float() / 255
    wanted = TF.normalize(wanted, list(IMAGENET_MEAN), list(IMAGENET_STD)) if normalise else wanted
    found = Scale(normalise)(EVERY_BYTE.contiguous(memory_format=layout))
    assert torch.equal(found, wanted)
    assert found.is_contiguous(memory_format=layout)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_one_multiplication_and_one_addition(layout: torch.memory_format) -> None:
    """To the bit what was computed so far, and to rounding what torchvision computes."""
    std, mean = (torch.tensor(values).view(3, 1, 1) for values in (IMAGENET_STD, IMAGENET_MEAN))
    found = Scale(folded=True)(EVERY_BYTE.contiguous(memory_format=layout))
    assert torch.equal(found, EVERY_BYTE.float() * (1 / (255 * std)) + -mean / std)
    torch.testing.assert_close(found, Scale()(EVERY_BYTE), rtol=0, atol=1e-6)
    assert torch.equal(Scale(False, folded=True)(EVERY_BYTE), EVERY_BYTE.float() * (1 / torch.tensor(255.0)))


def test_pictures_of_three_channels_are_normalised_and_nothing_else() -> None:
    labels = np.zeros(1, dtype=np.int64)
    picture = TensorDomain("a", torch.zeros(1, 3, 4, 4), labels)
    assert is_normalised(picture, 3)
    assert not is_normalised(picture, 1)
    assert not is_normalised(TensorDomain("a", torch.zeros(1, 3, 4, 4), labels, as_is=True), 3)


@pytest.mark.parametrize("engine", ["torch", "opencv", None])
def test_training_batches_are_the_same_in_every_place(tmp_path: Path, engine: str | None) -> None:
    domains = [d for d in open_folder(folder(tmp_path / "set")).domains if isinstance(d, FileDomain)]
    samplers = [Sampler(np.arange(len(d)), 11, 0, i) for i, d in enumerate(domains)]
    caches = [open_cache(d, TrainSpec(64), tmp_path / "cache") for d in domains]
    recipe = Recipe(24, engine=engine) if engine else None  # type: ignore[arg-type]
    first, *others = (
        Training(domains, samplers, recipe=recipe, caches=caches, size=24, place=place).at(3)
        for place in PLACES
    )
    for place, batches in zip(PLACES[1:], others, strict=True):
        for (x, y), (other, labels) in zip(first, batches, strict=True):
            assert torch.equal(x, other)
            assert torch.equal(y, labels)
            assert other.is_contiguous(memory_format=place.layout)


@pytest.mark.parametrize("cached", [True, False])
def test_evaluation_batches_are_the_same_in_every_place(tmp_path: Path, cached: bool) -> None:
    domain = open_folder(folder(tmp_path / "set", each=9)).domains[0]
    assert isinstance(domain, FileDomain)
    cache = open_cache(domain, EvalSpec(24), tmp_path / "cache") if cached else None
    first, *others = (list(Evaluation(domain, size=24, batch_size=7, cache=cache, place=p)) for p in PLACES)
    for place, batches in zip(PLACES[1:], others, strict=True):
        for (x, y), (other, labels) in zip(first, batches, strict=True):
            assert torch.equal(x, other)
            assert torch.equal(y, labels)
            assert other.is_contiguous(memory_format=place.layout)
