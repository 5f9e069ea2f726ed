"""TerraIncognita from camera-trap pictures and their annotations, in one pass over each.

DomainBed compares every image with every annotation; here a dictionary joins them and gives the same files. The
annotations were one JSON file in 2021 and are five now, and the number of images differs.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from ..domains import DataError
from .catalog import PUBLISHED
from .fetch import Bar, no_bar

TERRA = PUBLISHED["TerraIncognita"]
PlacedImage: TypeAlias = tuple[str, str, str]
"""Domain, category and name of one file of the set."""


def read_annotations(paths: Sequence[Path]) -> dict[str, list[dict[str, Any]]]:
    """The images, annotations and categories of all files, one list each."""
    merged: dict[str, list[dict[str, Any]]] = {"images": [], "annotations": [], "categories": []}
    for path in paths:
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            for key, rows in merged.items():
                rows.extend(content[key])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{path} cannot be used as annotations ({error!r}); it must be JSON with {', '.join(merged)}."
            ) from error
    return merged


def join(data: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[PlacedImage]:
    """Which image goes where, each place once, in the order of the images: linear in images plus annotations.

    Kept are the four locations, compared as text, and the ten categories. An image with several annotations of
    different kept categories has a place in each.
    """
    names = {row["id"]: row["name"] for row in data["categories"]}
    categories: dict[Any, dict[Any, None]] = defaultdict(dict)
    for row in data["annotations"]:
        categories[row["image_id"]][row["category_id"]] = None
    places: dict[PlacedImage, None] = {}
    for row in data["images"]:
        domain, file = f"location_{row.get('location')}", row["file_name"]
        if domain not in TERRA.domains:
            continue
        if not file or file != Path(file).name or "\\" in file:
            raise DataError(f"The annotations name the file {file!r}; expected a file name without folders.")
        for category in (names[key] for key in categories.get(row["id"], ())):
            if category in TERRA.classes:
                places[domain, category, file] = None
    return list(places)


def arrange(images: Path, annotations: Path, target: Path, bar: Bar = no_bar) -> int:
    """Put every image at ``target/location_<id>/<category>/``; what is there already is left alone.

    Gives how many images the annotations name that are not there.

    Args:
        images: a folder with the pictures, in it or below it.
        annotations: the same for the annotations.
        target: the folder of the set.
        bar: shows the progress.
    """
    places = join(read_annotations(sorted(annotations.rglob("*.json"))))
    sources = {path.name: path for path in images.rglob("*.*") if path.is_file()}
    there = [place for place in places if place[-1] in sources]
    if not there:
        raise DataError(f"{images} has none of the {len(places):,} images that the annotations name there.")
    with bar("arrange the images", len(there)) as advance:
        for domain, category, file in there:
            _place(sources[file], target / domain / category / file)
            advance(1)
    return len({file for *_, file in places} - sources.keys())


def _place(source: Path, target: Path) -> None:
    """Hard-link one file, or copy it where the disk cannot; a copy that was not finished is made again."""
    if target.is_file() and target.stat().st_size == source.stat().st_size:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:  # another disk, or one without links: the copy says what else may be wrong
        shutil.copyfile(source, target)
