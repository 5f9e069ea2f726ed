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
    """One file to fetch."""

    file: str  # what it is called on disk
    mirrors: tuple[str, ...]  # http addresses, or drive:<id> for Google Drive; best first
    becomes: str = ""  # the folder of the archive that is one of the set; empty: it has all domains in it
    by_hand: tuple[str, ...] = ()  # names of files that may be put in its place
    sha256: str | None = None


@dataclass(frozen=True)
class PublishedSet:
    """What is known of a published set."""

    name: str
    folders: tuple[str, ...]  # the names its folder goes by: DomainBed's first, then others
    domains: tuple[str, ...]  # folder of each domain, in order
    class_count: int
    classes: tuple[str, ...] = ()  # in order; empty where only the number is fixed
    variants: Mapping[str, tuple[int, ...] | int] = field(
        default_factory=dict
    )  # images by domain, or their total
    files: tuple[SourceFile, ...] = ()  # all of them are needed
    camera_traps: bool = False  # whether the files are pictures and annotations that say where each one goes
    duplicates: str = ""  # the one of the files that lists pictures to remove; empty for none

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
