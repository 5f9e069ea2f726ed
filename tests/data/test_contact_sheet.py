"""The contact sheet: the right samples in the right cells, everything labelled, nothing hidden."""

from __future__ import annotations

import random
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageColor, ImageDraw
from torch import Tensor

from genie_dg.data.contact_sheet import as_rgb, contact_sheet
from genie_dg.data.domains import DataError, DomainSet, FileDomain, TensorDomain

ALARM = ImageColor.getrgb("#c0261b")


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[float, ...]]]:
    """Every text that is drawn, with the box of its ink."""
    seen: list[tuple[str, tuple[float, ...]]] = []
    original = ImageDraw.ImageDraw.text

    def text(self: ImageDraw.ImageDraw, xy: Any, content: str, **options: Any) -> None:
        seen.append((content, self.textbbox(xy, content, font=options["font"])))
        original(self, xy, content, **options)

    monkeypatch.setattr(ImageDraw.ImageDraw, "text", text)
    return seen


def colour_of(domain: int, label: int) -> tuple[int, int, int]:
    return 20 + 50 * domain, 10 + 20 * label, 200


def coded(domains: int = 3, classes: int = 4, each: int = 5, side: int = 8) -> DomainSet:
    """Every image is one flat colour that says its domain and its class."""
    sets = []
    for domain in range(domains):
        labels = np.tile(np.arange(classes), each)  # classes alternate, so a sheet in file order would be wrong
        colours = torch.tensor([colour_of(domain, label) for label in labels.tolist()], dtype=torch.uint8)
        images = colours[:, :, None, None].expand(-1, -1, side, side)
        sets.append(TensorDomain(f"domain {domain}", images, labels))
    return DomainSet("Coded", tuple(f"class {label}" for label in range(classes)), tuple(sets))


def inside(image: Image.Image, box: tuple[int, int, int, int]) -> set[tuple[int, ...]]:
    """The colours in a box."""
    return set(map(tuple, np.asarray(image.crop(box)).reshape(-1, 3).tolist()))


@pytest.mark.parametrize("side", [8, 50, 200])
def test_every_cell_shows_its_own_domain_and_class(side: int) -> None:
    """At 8 pixels images are enlarged hard, at 50 smoothly, and at 200 they are reduced."""
    sheet = contact_sheet(coded(side=side), per_cell=2)
    boxes = []
    for domain in range(3):
        for label in range(4):
            cell = sheet.cells[f"domain {domain}", f"class {label}"]
            assert [inside(sheet.image, box) for box in cell] == [{colour_of(domain, label)}] * 2
            boxes += cell
    for a, b in combinations(boxes, 2):
        assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
    assert sheet.problems == []


def test_samples_are_chosen_by_the_seed_without_repetition() -> None:
    """Twenty samples of one class, each with a grey of its own."""
    greys = torch.arange(0, 200, 10, dtype=torch.uint8)
    images = greys.view(-1, 1, 1, 1).expand(-1, 1, 8, 8)
    many = DomainSet("Many", ("only",), (TensorDomain("one", images, np.zeros(20, dtype=np.int64)),))

    def chosen(seed: int) -> list[int]:
        sheet = contact_sheet(many, per_cell=6, seed=seed)
        return [next(iter(inside(sheet.image, box)))[0] for box in sheet.cells["one", "only"]]

    before = torch.get_rng_state(), random.getstate()
    assert chosen(0) == chosen(0) != chosen(1)
    for seed in range(10):
        assert len(set(chosen(seed))) == 6
        assert set(chosen(seed)) <= set(greys.tolist())
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]


def test_a_missing_class_and_files_that_cannot_be_read(
    tmp_path: Path, texts: list[tuple[str, tuple[float, ...]]]
) -> None:
    Image.new("RGB", (30, 30), (0, 0, 255)).save(tmp_path / "good one.png")
    (tmp_path / "bäd.jpg").write_bytes(b"not a picture")
    (tmp_path / "empty.png").write_bytes(b"")
    paths = ["good one.png", "bäd.jpg", "empty.png", "gone.png"]
    domain = FileDomain("files", tmp_path, paths, np.zeros(4, dtype=np.int64))
    sheet = contact_sheet(DomainSet("Broken", ("thing", "nothing"), (domain,)), per_cell=4)
    assert sheet.cells["files", "nothing"] == []
    assert len(sheet.problems) == 3
    for path, problem in zip(paths[1:], sheet.problems, strict=True):
        assert str(tmp_path / path) in problem
        assert "\n" not in problem
    good, *crossed = sheet.cells["files", "thing"]
    assert inside(sheet.image, good) == {(0, 0, 255)}
    assert len(crossed) == 3
    for left, top, right, bottom in crossed:
        assert sheet.image.getpixel(((left + right) // 2, (top + bottom) // 2)) == ALARM
    written = [text for text, _ in texts]
    assert written.count("none") == 1
    assert "3 samples could not be read (crossed)" in written


@pytest.mark.parametrize(("number", "domains"), [(3, 1), (345, 6), (2, 14)])
def test_a_sheet_is_one_page_with_whole_texts(
    texts: list[tuple[str, tuple[float, ...]]], number: int, domains: int
) -> None:
    names = tuple(f"Émile's class number {k} with a long name" for k in range(number))
    images, labels = torch.zeros(number, 1, 8, 8, dtype=torch.uint8), np.arange(number)
    parts = tuple(TensorDomain(f"domain_{d}_with_a_name_that_is_long", images, labels) for d in range(domains))
    sheet = contact_sheet(DomainSet("Large", names, parts), per_cell=1)
    assert len(sheet.cells) == min(number, 20) * min(domains, 12)
    assert max(sheet.image.size) < 1800
    for text, (left, top, right, bottom) in texts:
        assert 0 <= left <= right <= sheet.image.width, text
        assert 0 <= top <= bottom <= sheet.image.height, text
    for (a, one), (b, two) in combinations([entry for entry in texts if entry[0]], 2):
        assert one[2] <= two[0] or two[2] <= one[0] or one[3] <= two[1] or two[3] <= one[1], (a, b)
    note = " ".join(text for text, _ in texts)
    assert ("first 20 of 345 classes" in note) == (number == 345)
    assert ("first 12 of 14 domains" in note) == (domains == 14)


def test_pictures_keep_their_proportions_and_small_ones_their_hard_pixels() -> None:
    labels = np.zeros(1, dtype=np.int64)
    wide = torch.full((1, 3, 20, 40), 7, dtype=torch.uint8)
    hard = torch.arange(0, 256, 4, dtype=torch.uint8).view(1, 1, 8, 8)
    for name, images in (("wide", wide), ("hard", hard)):
        sheet = contact_sheet(DomainSet(name, ("a",), (TensorDomain("d", images, labels),)))
        shown = np.asarray(sheet.image.crop(sheet.cells["d", "a"][0]))
        if name == "hard":
            assert np.array_equal(shown[..., 0], np.kron(hard[0, 0].numpy(), np.ones((8, 8), dtype=np.uint8)))
        else:
            ground = (shown == ImageColor.getrgb("#eef0f3")).all(-1)
            assert ground[:16].all() and ground[48:].all()  # noqa: PT018
            assert (shown[16:48] == 7).all()


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        (torch.tensor([9], dtype=torch.uint8), (9, 9, 9)),
        (torch.tensor([9, 0], dtype=torch.uint8), (9, 0, 0)),
        (torch.tensor([1, 2, 3], dtype=torch.uint8), (1, 2, 3)),
        (torch.tensor([1, 2, 3, 4], dtype=torch.uint8), (1, 2, 3)),
        (torch.tensor([0.0, 0.2, 1.0]), (0, 51, 255)),
        (torch.tensor([-2.0, 0.0, 2.0]), (0, 128, 255)),
        (torch.tensor([3.0, 3.0, 3.0]), (0, 0, 0)),
    ],
)
def test_tensors_of_every_kind_become_colours(sample: Tensor, expected: tuple[int, int, int]) -> None:
    assert as_rgb(sample.view(-1, 1, 1)).getpixel((0, 0)) == expected


def test_pictures_become_rgb_and_impossible_tensors_are_refused() -> None:
    assert as_rgb(Image.new("L", (2, 3), 5)).getpixel((1, 2)) == (5, 5, 5)
    for shape in ((4, 4), (0, 4, 4), (1, 3, 4, 4)):
        with pytest.raises(DataError, match="channels, height, width"):
            as_rgb(torch.zeros(shape))
    with pytest.raises(DataError, match="got per_cell=0; expected a whole number of at least 1"):
        contact_sheet(coded(), per_cell=0)
