"""The join of camera-trap images and annotations, against DomainBed's loop over all pairs."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genie_dg.data.domains import DataError
from genie_dg.data.published import terra
from genie_dg.data.published.catalog import PUBLISHED
from genie_dg.data.published.terra import arrange, join, read_annotations

CLASSES = PUBLISHED["TerraIncognita"].classes
NAMES = [*CLASSES, "car", "deer"]


def quadratic(data: dict[str, list[dict[str, Any]]]) -> set[tuple[str, str, str]]:
    """DomainBed's way: every image with every annotation."""
    names = {}
    for item in data["categories"]:
        names[item["id"]] = item["name"]
    places = set()
    for image in data["images"]:
        if str(image["location"]) not in ["38", "46", "100", "43"]:
            continue
        for annotation in data["annotations"]:
            if annotation["image_id"] == image["id"]:
                category = names[annotation["category_id"]]
                if category in CLASSES:
                    places.add(("location_" + str(image["location"]), category, image["file_name"]))
    return places


@st.composite
def annotations(draw: st.DrawFn) -> dict[str, list[dict[str, Any]]]:
    """Images listed twice, without or with several annotations, annotations of no image, numbers as text."""
    ids = st.sampled_from([f"im{k}" for k in range(8)])
    location = st.sampled_from([38, "38", 46, "100", 100, 43, "43", 7, "0", "038", "143"])
    images = [
        {"id": key, "location": draw(location), "file_name": f"{key}.jpg"}
        for key in draw(st.lists(ids, max_size=12))
    ]
    category = st.integers(0, len(NAMES) - 1)
    pairs = draw(st.lists(st.tuples(st.one_of(ids, st.just("ghost")), category), max_size=30))
    return {
        "images": images,
        "annotations": [{"id": str(k), "image_id": i, "category_id": c} for k, (i, c) in enumerate(pairs)],
        "categories": [{"id": k, "name": name} for k, name in enumerate(NAMES)] * draw(st.integers(1, 2)),
    }


@settings(max_examples=150, deadline=None)
@given(annotations())
def test_the_join_gives_the_places_of_the_slow_twin_each_once(data: dict[str, list[dict[str, Any]]]) -> None:
    places = join(data)
    assert set(places) == quadratic(data)
    assert len(set(places)) == len(places)


def write(folder: Path, data: dict[str, list[dict[str, Any]]]) -> list[Path]:
    """The annotations dealt out to five files, as they are published; all of them have the categories."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for k in range(5):
        part = {"info": {}, **{key: data[key][k::5] for key in ("images", "annotations")}}
        (folder / f"{k}.json").write_text(json.dumps({**part, "categories": data["categories"]}))
        paths.append(folder / f"{k}.json")
    return paths


def example(folder: Path) -> tuple[Path, Path]:
    """Four images, one of them with two categories, one outside, one kept by no category."""
    images = folder / "images"
    images.mkdir()
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    kept = [("a", 38, "dog"), ("a", 38, "cat"), ("a", 38, "dog"), ("b", "100", "empty"), ("c", 43, "car")]
    for name, location, category in [*kept, ("d", 7, "dog")]:
        (images / f"{name}.jpg").write_bytes(name.encode() * 10)
        if name not in [row["id"] for row in rows["images"]]:
            rows["images"].append({"id": name, "location": location, "file_name": f"{name}.jpg"})
        rows["annotations"].append({"image_id": name, "category_id": NAMES.index(category)})
    rows["categories"] = [{"id": k, "name": name} for k, name in enumerate(NAMES)]
    write(folder / "annotations", rows)
    return images, folder / "annotations"


PLACED = {
    "location_38/dog/a.jpg": b"a" * 10,
    "location_38/cat/a.jpg": b"a" * 10,
    "location_100/empty/b.jpg": b"b" * 10,
}


def tree(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def without_links(*paths: Path) -> None:
    raise OSError("a disk without links")


@pytest.fixture(params=[False, True])
def link(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the disk can link."""
    if not request.param:
        monkeypatch.setattr(terra.os, "link", without_links)
    return bool(request.param)


def test_images_go_to_every_kept_category(tmp_path: Path, link: bool) -> None:
    images, annotated = example(tmp_path)
    assert arrange(images, annotated, tmp_path / "set") == 0
    assert tree(tmp_path / "set") == PLACED
    placed = tmp_path / "set" / "location_38" / "dog" / "a.jpg"
    assert placed.samefile(images / "a.jpg") == link


@pytest.mark.usefixtures("link")
def test_a_second_call_writes_only_what_is_not_there(tmp_path: Path) -> None:
    images, annotated = example(tmp_path)
    arrange(images, annotated, tmp_path / "set")
    for category in ("dog", "cat"):
        (tmp_path / "set" / "location_38" / category / "a.jpg").unlink()
    (tmp_path / "set" / "location_38" / "dog" / "a.jpg").write_bytes(b"half")
    untouched = (tmp_path / "set" / "location_100" / "empty" / "b.jpg").stat().st_mtime_ns
    arrange(images, annotated, tmp_path / "set")
    assert tree(tmp_path / "set") == PLACED
    assert (tmp_path / "set" / "location_100" / "empty" / "b.jpg").stat().st_mtime_ns == untouched


def test_missing_images_are_reported_and_the_rest_is_built(tmp_path: Path) -> None:
    images, annotated = example(tmp_path)
    (images / "a.jpg").unlink()
    assert arrange(images, annotated, tmp_path / "set") == 1
    assert list(tree(tmp_path / "set")) == ["location_100/empty/b.jpg"]
    (images / "b.jpg").unlink()
    with pytest.raises(DataError, match="has none of the 3 images"):
        arrange(images, annotated, tmp_path / "other")


@pytest.mark.parametrize("name", ["../x.jpg", "/x.jpg", "a/x.jpg", "a\\x.jpg", "", "."])
def test_a_file_name_that_is_a_path_is_refused(name: str) -> None:
    rows = [{"id": 1, "location": 38, "file_name": name}]
    annotated = [{"image_id": 1, "category_id": 0}]
    with pytest.raises(DataError, match="The annotations"):
        join({"images": rows, "annotations": annotated, "categories": [{"id": 0, "name": "dog"}]})


@pytest.mark.parametrize("text", ["{", "[]", '{"images": [], "annotations": []}', '{"images": 3}'])
def test_files_that_are_no_annotations_are_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(DataError, match=r"x\.json cannot be used as annotations"):
        read_annotations([tmp_path / "x.json"])
