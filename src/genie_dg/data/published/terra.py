"""TerraIncognita from camera-trap pictures and their annotations, in one pass over each.

DomainBed compares every image with every annotation; here a dictionary joins them and gives the same files. The
annotations were one JSON file in 2021 and are five now, and the number of images differs.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from ..domains import DataError
from ..progress import Progress, silent
from .archives import ArchiveError, safe_parts
from .catalog import PUBLISHED

TERRA = PUBLISHED["TerraIncognita"]
FIVE = tuple(f"{part}_annotations.json" for part in ("cis_test", "cis_val", "train", "trans_test", "trans_val"))
"""The five files that together are the annotations."""


Place: TypeAlias = tuple[str, str, str]
"""Domain, category and name of one file of the set."""


@dataclass(frozen=True)
class TerraSummary:
    """What was built."""

    counts: dict[str, int]  # images in each domain, missing ones left out
    missing: tuple[str, ...]  # image files that the annotations name and the folder does not have
    written: int  # files that were written now; the others were there already
    variant: str  # the published variant with these counts; empty when there is none

    def sentence(self) -> str:
        """The numbers in one sentence."""
        each = ", ".join(f"{domain} {count:,}" for domain, count in self.counts.items())
        text = f"TerraIncognita has {sum(self.counts.values()):,} images ({each}), "
        text += (
            f"that is the variant of {self.variant}" if self.variant else "which is neither published variant"
        )
        if self.missing:
            text += f"; {len(self.missing):,} named files are missing, {self.missing[0]} first"
        return f"{text}."


def annotation_files(folder: Path) -> tuple[Path, ...]:
    """The five annotation files of a folder, or the single one of 2021, wherever below the folder they are."""
    files = sorted(folder.rglob("*.json"))
    five = tuple(path for path in files if path.name in FIVE)
    if len(five) == len(FIVE):
        return five
    if len(files) == 1:
        return tuple(files)
    raise DataError(f"{folder} has {len(files)} JSON files; expected {', '.join(FIVE)}, or the one of 2021.")


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


def join(data: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Place]:
    """Which image goes where, each place once, in the order of the images: linear in images plus annotations.

    Kept are the four locations, compared as text, and the ten categories. An image with several annotations of
    different kept categories has a place in each.
    """
    try:
        names = {row["id"]: row["name"] for row in data["categories"]}
        categories: dict[Any, dict[Any, None]] = defaultdict(dict)
        for row in data["annotations"]:
            categories[row["image_id"]][row["category_id"]] = None
        places: dict[Place, None] = {}
        for row in data["images"]:
            domain = f"location_{row.get('location')}"
            if domain in TERRA.domains:
                file = _file_name(row["file_name"])
                for category in (names[key] for key in categories.get(row["id"], ())):
                    if category in TERRA.classes:
                        places[domain, category, file] = None
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"The annotations do not fit together ({error!r}); fetch them again.") from error
    return list(places)


def _file_name(name: str) -> str:
    """A name that is one part: it becomes a file in the folder of a class."""
    try:
        if len(safe_parts(name)) == 1:
            return name
    except ArchiveError as error:
        raise DataError(f"The annotations are refused: {error}.") from error
    raise DataError(f"The annotations name the file {name!r}; a plain file name without folders is allowed.")


def _sizes(images: Path) -> dict[str, int]:
    try:
        with os.scandir(images) as entries:
            return {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}
    except OSError as error:
        raise DataError(f"{images} cannot be read: {error.strerror}; give the folder of the images.") from error


def _put(source: Path, target: Path) -> None:
    """Hard-link one file, or copy it where the disk cannot. It has its name only when it is whole."""
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.part")
    draft.unlink(missing_ok=True)
    try:
        os.link(source, draft)
    except OSError:  # another disk, or one without links: the copy says what else may be wrong
        shutil.copyfile(source, draft)
    draft.replace(target)


def build(images: Path, annotations: Sequence[Path], target: Path, progress: Progress = silent) -> TerraSummary:
    """Put every image at ``target/location_<id>/<category>/``; what is there already is left alone.

    Raises:
        DataError: the annotations cannot be used, no named image exists, or the disk cannot be written.
    """
    places = join(read_annotations(annotations))
    sizes = _sizes(images)
    missing = dict.fromkeys(file for _, _, file in places if file not in sizes)
    counts: Counter[str] = Counter()
    written = 0
    for done, (domain, category, file) in enumerate(places, start=1):
        if file in missing:
            continue
        path = target / domain / category / file
        try:
            if not (path.is_file() and path.stat().st_size == sizes[file]):
                _put(images / file, path)
                written += 1
        except OSError as error:
            raise DataError(f"{path} cannot be written: {error.strerror}; other files are kept.") from error
        counts[domain] += 1
        progress(done, len(places))
    if not counts:
        raise DataError(f"{images} has none of the {len(places):,} images that the annotations name there.")
    present = {domain: counts[domain] for domain in TERRA.domains}
    return TerraSummary(present, tuple(missing), written, TERRA.variant_of(present))
