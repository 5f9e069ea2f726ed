"""The contact sheet: the right samples in the right cells, everything labelled, nothing cut off."""

from __future__ import annotations

import doctest
import random
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageColor, ImageDraw
from torch import Tensor

from genie_dg.data import contact_sheet as module
from genie_dg.data.contact_sheet import ALARM, GROUND, PAPER, as_rgb, contact_sheet
from genie_dg.data.domains import DataError, DatasetDomain, DomainSet, FileDomain, TensorDomain


class Texts(list[tuple[str, tuple[float, float, float, float]]]):
    """Every text that was drawn, with the box of its ink."""

    def words(self) -> list[str]:
        return [text for text, _ in self]


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> Texts:
    seen = Texts()
    original = ImageDraw.ImageDraw.text

    def text(self: ImageDraw.ImageDraw, xy: Any, content: str, **options: Any) -> None:
        box = self.textbbox(xy, content, font=options["font"], anchor=options.get("anchor"))
        seen.append((content, box))
        original(self, xy, content, **options)

    monkeypatch.setattr(ImageDraw.ImageDraw, "text", text)
    return seen


def colour_of(domain: int, label: int) -> tuple[int, int, int]:
    return 20 + 50 * domain, 10 + 20 * label, 200


def coded(domains: int = 3, classes: int = 4, each: int = 5, side: int = 8) -> DomainSet:
    """Every image is one flat colour that says its domain and its class."""
    made = []
    for domain in range(domains):
        labels = np.tile(np.arange(classes), each)  # classes alternate, so a sheet in file order would be wrong
        colours = torch.tensor([colour_of(domain, label) for label in labels.tolist()], dtype=torch.uint8)
        images = colours[:, :, None, None].expand(-1, -1, side, side)
        made.append(TensorDomain(f"domain {domain}", images, labels))
    return DomainSet("Coded", tuple(f"class {label}" for label in range(classes)), tuple(made))


def inside(image: Image.Image, box: tuple[int, int, int, int]) -> set[tuple[int, ...]]:
    """The colours in a box."""
    return set(map(tuple, np.asarray(image.crop(box)).reshape(-1, 3).tolist()))


@pytest.mark.parametrize("side", [8, 50, 200])
def test_every_cell_shows_its_own_domain_and_class(side: int) -> None:
    """At 8 pixels images are enlarged hard, at 50 smoothly, and at 200 they are reduced."""
    sheet = contact_sheet(coded(side=side), per_cell=2, cell=40)
    for domain in range(3):
        for label in range(4):
            boxes = sheet.cells[f"domain {domain}", f"class {label}"]
            assert len(boxes) == 2
            for box in boxes:
                assert (box[2] - box[0], box[3] - box[1]) == (40, 40)
                assert inside(sheet.image, box) == {colour_of(domain, label)}
    assert sheet.problems == []


def test_domains_are_columns_classes_are_rows_and_nothing_overlaps() -> None:
    sheet = contact_sheet(coded())
    lefts = [sheet.cells[f"domain {domain}", "class 0"][0][0] for domain in range(3)]
    tops = [sheet.cells["domain 0", f"class {label}"][0][1] for label in range(4)]
    assert lefts == sorted(set(lefts))
    assert tops == sorted(set(tops))
    boxes = [box for found in sheet.cells.values() for box in found]
    width, height = sheet.image.size
    assert all(min(box) > 0 and box[2] < width and box[3] < height for box in boxes)
    for a, b in combinations(boxes, 2):
        assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]


def test_samples_are_chosen_by_the_seed_without_repetition() -> None:
    """Twenty samples of one class, each with a grey of its own."""
    greys = torch.arange(0, 200, 10, dtype=torch.uint8)
    images = greys.view(-1, 1, 1, 1).expand(-1, 1, 8, 8)
    many = DomainSet("Many", ("only",), (TensorDomain("one", images, np.zeros(20, dtype=np.int64)),))

    def chosen(seed: int) -> list[int]:
        sheet = contact_sheet(many, per_cell=6, seed=seed)
        found = [inside(sheet.image, box) for box in sheet.cells["one", "only"]]
        assert all(len(colours) == 1 for colours in found)
        return [next(iter(colours))[0] for colours in found]

    before = torch.get_rng_state(), random.getstate()
    assert chosen(0) == chosen(0)
    assert chosen(0) != chosen(1)
    for seed in range(10):
        assert len(set(chosen(seed))) == 6
        assert set(chosen(seed)) <= set(greys.tolist())
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]


def test_a_missing_class_is_an_empty_cell_with_a_mark(texts: Texts) -> None:
    full = coded(domains=2, classes=2)
    first = full.domains[0]
    assert isinstance(first, TensorDomain)
    kept = np.flatnonzero(first.labels == 0)
    lacking = TensorDomain("lacking", first.images[torch.from_numpy(kept)], first.labels[kept])
    sheet = contact_sheet(DomainSet("Gap", full.classes, (lacking, full.domains[1])), per_cell=2)
    assert sheet.cells["lacking", "class 1"] == []
    assert texts.words().count("none") == 1
    left, _, _, _ = sheet.cells["lacking", "class 0"][0]
    _, top, _, bottom = sheet.cells["domain 1", "class 1"][0]
    right = sheet.cells["lacking", "class 0"][-1][2]
    colours = inside(sheet.image, (left, top, right, bottom))
    assert ImageColor.getrgb(GROUND) in colours
    assert colour_of(0, 1) not in colours
    (box,) = [box for text, box in texts if text == "none"]
    assert left < box[0] < box[2] < right
    assert top < box[1] < box[3] < bottom


def test_an_undecodable_file_is_crossed_and_named(tmp_path: Path, texts: Texts) -> None:
    Image.new("RGB", (30, 30), (0, 0, 255)).save(tmp_path / "good one.png")
    (tmp_path / "bäd.jpg").write_bytes(b"not a picture")
    (tmp_path / "empty.png").write_bytes(b"")
    paths = ["good one.png", "bäd.jpg", "empty.png", "gone.png"]
    domain = FileDomain("files", tmp_path, paths, np.zeros(4, dtype=np.int64))
    sheet = contact_sheet(DomainSet("Broken", ("thing",), (domain,)), per_cell=4)
    assert len(sheet.problems) == 3
    for path, problem in zip(paths[1:], sheet.problems, strict=True):
        assert problem.count(str(tmp_path / path)) >= 1
        assert "\n" not in problem
    good, *crossed = sheet.cells["files", "thing"]
    assert inside(sheet.image, good) == {(0, 0, 255)}
    alarm = ImageColor.getrgb(ALARM)
    for left, top, right, bottom in crossed:
        middle = (left + right) // 2, (top + bottom) // 2
        assert sheet.image.getpixel((left, top)) == sheet.image.getpixel((right - 1, top)) == alarm
        assert sheet.image.getpixel(middle) == alarm
        for x in (left + 16, right - 17):  # both diagonals
            column = sheet.image.crop((x, top + 1, x + 1, bottom - 1))
            groups = np.flatnonzero(np.diff((np.asarray(column) == alarm).all(-1)[:, 0].astype(int)) == 1)
            assert len(groups) == 2
        assert sheet.image.getpixel((middle[0], top + 6)) == ImageColor.getrgb(GROUND)
    assert "3 samples could not be read (crossed)" in texts.words()


class Failing(torch.utils.data.Dataset[tuple[Tensor, int]]):
    def __init__(self, error: Exception) -> None:
        self.error = error

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        raise self.error


def test_a_dataset_that_cannot_read_is_named_and_a_wrong_program_is_not_hidden() -> None:
    labels = np.zeros(1, dtype=np.int64)
    unreadable = DatasetDomain("mine", Failing(OSError("disk gone")), labels)
    sheet = contact_sheet(DomainSet("Mine", ("a",), (unreadable,)))
    assert sheet.problems == ["sample 0 of mine cannot be shown (disk gone)."]
    with pytest.raises(ZeroDivisionError):
        contact_sheet(DomainSet("Mine", ("a",), (DatasetDomain("mine", Failing(ZeroDivisionError()), labels),)))


@pytest.mark.parametrize(("number", "domains"), [(65, 4), (345, 6)])
def test_many_classes_stay_one_page_with_a_note(texts: Texts, number: int, domains: int) -> None:
    names = tuple(f"class number {k} with a name of some length" for k in range(number))
    images, labels = torch.zeros(number, 1, 8, 8, dtype=torch.uint8), np.arange(number)
    parts = tuple(TensorDomain(f"domain_{d}_with_a_long_name", images, labels) for d in range(domains))
    sheet = contact_sheet(DomainSet("Large", names, parts))
    assert len(sheet.cells) == 20 * domains
    assert sheet.image.width < 1600
    assert sheet.image.height < 1800
    assert f"first 20 of {number} classes" in texts.words()
    assert f"Large: {domains} domains, {number} classes, {number * domains:,} samples" in texts.words()


def test_many_domains_stay_one_page_with_a_note(texts: Texts) -> None:
    sheet = contact_sheet(coded(domains=3), max_domains=2, max_classes=3)
    assert len(sheet.cells) == 6
    assert "first 3 of 4 classes; first 2 of 3 domains" in texts.words()


@pytest.mark.parametrize("per_cell", [1, 3])
def test_no_text_is_cut_off_or_runs_into_the_next(texts: Texts, per_cell: int) -> None:
    names = ("a", "The_Eiffel_Tower_of_Paris_at_night_in_winter", "Émile's café")
    images, labels = torch.zeros(3, 3, 8, 8, dtype=torch.uint8), np.arange(3)
    parts = tuple(TensorDomain(f"a domain with a very long name, number {d}", images, labels) for d in range(3))
    title = (
        "A title that is much longer than the sheet is wide and therefore has to go on in a second line " * 2
    )
    sheet = contact_sheet(DomainSet(title, names, parts), per_cell=per_cell)
    for text, (left, top, right, bottom) in texts:
        assert 0 <= left < right <= sheet.image.width, text
        assert 0 <= top < bottom <= sheet.image.height, text
    for (a, one), (b, two) in combinations(texts, 2):
        apart = one[2] <= two[0] or two[2] <= one[0] or one[3] <= two[1] or two[3] <= one[1]
        assert apart, (a, b)
    boxes = [box for found in sheet.cells.values() for box in found]
    for text, ink in texts:
        for box in boxes:
            outside = ink[2] <= box[0] or box[2] <= ink[0] or ink[3] <= box[1] or box[3] <= ink[1]
            assert outside, text
    assert " ".join(texts.words()).count("A title that is much") == 2
    assert sum("…" in text and text.startswith("The_Eif") for text in texts.words()) == 1
    assert "Émile's café" in texts.words()


def test_one_of_a_kind_is_written_in_the_singular(texts: Texts) -> None:
    image = torch.zeros(1, 1, 8, 8, dtype=torch.uint8)
    contact_sheet(DomainSet("One", ("a",), (TensorDomain("d", image, np.zeros(1, dtype=np.int64)),)))
    assert texts.words() == ["One: 1 domain, 1 class, 1 sample", "a", "d", "1 sample"]


def test_pictures_keep_their_proportions() -> None:
    wide = torch.full((1, 3, 20, 40), 7, dtype=torch.uint8)
    sheet = contact_sheet(DomainSet("Wide", ("a",), (TensorDomain("d", wide, np.zeros(1, dtype=np.int64)),)))
    left, top, right, bottom = sheet.cells["d", "a"][0]
    pixels = np.asarray(sheet.image.crop((left, top, right, bottom)))
    ground = (pixels == ImageColor.getrgb(GROUND)).all(-1)
    assert ground[:16].all()
    assert ground[48:].all()
    assert (pixels[16:48] == 7).all()
    assert sheet.image.getpixel((0, 0)) == ImageColor.getrgb(PAPER)


def test_small_images_keep_hard_pixels_in_their_places() -> None:
    image = torch.arange(0, 256, 4, dtype=torch.uint8).view(1, 1, 8, 8)
    sheet = contact_sheet(DomainSet("Hard", ("a",), (TensorDomain("d", image, np.zeros(1, dtype=np.int64)),)))
    shown = np.asarray(sheet.image.crop(sheet.cells["d", "a"][0]))[..., 0]
    assert np.array_equal(shown, np.kron(image[0, 0].numpy(), np.ones((8, 8), dtype=np.uint8)))


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        (torch.tensor([9], dtype=torch.uint8), (9, 9, 9)),
        (torch.tensor([9, 0], dtype=torch.uint8), (9, 0, 0)),
        (torch.tensor([0, 9], dtype=torch.uint8), (0, 9, 0)),
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


@pytest.mark.parametrize("wrong", [{"per_cell": 0}, {"cell": 8}, {"seed": -1}, {"max_classes": 0}])
def test_bad_arguments_are_refused(wrong: dict[str, int]) -> None:
    ((key, value),) = wrong.items()
    with pytest.raises(DataError, match=f"got {key}={value}; expected a whole number of at least"):
        contact_sheet(coded(), **wrong)  # type: ignore[arg-type]


def test_docstring_examples() -> None:
    failed, tried = doctest.testmod(module)
    assert tried > 0
    assert failed == 0
