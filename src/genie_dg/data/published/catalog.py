"""The published sets: folders, domains, classes, counts and files, as published_sets.toml has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from genie_dg.check import did_you_mean

from ..domains import DataError


@dataclass(frozen=True)
class SourceFile:
    """One file to fetch.

    Args:
        file: what it is called on disk.
        mirrors: http addresses, or ``drive:<id>`` for Google Drive; best first, and the same set from each.
        unpacks_to: the folders in the archive that are wanted, one of which is there; empty for a plain file.
        becomes: what that folder is called below the folder of the set; empty for the set itself.
        by_hand: names of files that may be put in its place.
        sha256: checksum, where known.
        size: bytes, where known.
    """

    file: str
    mirrors: tuple[str, ...]
    unpacks_to: tuple[str, ...] = ()
    becomes: str = ""
    by_hand: tuple[str, ...] = ()
    sha256: str | None = None
    size: int | None = None


@dataclass(frozen=True)
class PublishedSet:
    """What is known of a published set.

    Args:
        folders: the names its folder goes by: DomainBed's first, then others.
        domains: folder of each domain, in order.
        letters: what tables call them.
        class_count: how many classes there are.
        classes: in order; empty where only the number is fixed.
        variants: by name, the number of images in each domain, or their total where only that is published.
        files: where it comes from; all of them are needed.
        elsewhere: copies in another layout or dead links, to tell the user and never fetched.
        camera_traps: whether the two files are pictures and annotations, which say where each picture goes.
        duplicates: the file that lists pictures to remove; empty for none.
    """

    name: str
    folders: tuple[str, ...]
    domains: tuple[str, ...]
    letters: tuple[str, ...]
    class_count: int
    classes: tuple[str, ...] = ()
    variants: Mapping[str, tuple[int, ...] | int] = field(default_factory=dict)
    files: tuple[SourceFile, ...] = ()
    elsewhere: tuple[str, ...] = ()
    camera_traps: bool = False
    duplicates: str = ""

    def variant_of(self, counts: Mapping[str, int]) -> str:
        """The variant with these numbers of images by domain (or this total), or an empty string."""
        present = tuple(counts.get(domain, 0) for domain in self.domains)
        return next((name for name, known in self.variants.items() if known in (present, sum(present))), "")


_FACTS = Path(__file__).with_name("published_sets.toml").read_bytes()
PUBLISHED: dict[str, PublishedSet] = {
    row.name: row for row in msgspec.toml.decode(_FACTS, type=dict[str, tuple[PublishedSet, ...]])["sets"]
}
"""By name."""


def published_set(name: str) -> PublishedSet:
    """The set of that name, in upper or lower case; for an unknown name `DataError` lists the names."""
    for known, row in PUBLISHED.items():
        if known.lower() == name.lower():
            return row
    hint = did_you_mean(name, PUBLISHED)
    raise DataError(f"There is no download for {name!r}; the choice is {', '.join(PUBLISHED)}{hint}")
