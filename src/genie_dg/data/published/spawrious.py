"""Spawrious as DomainBed puts it together: dogs whose breed goes with the place in training and not in testing.

The folder has ``<part>/<place>/<breed>/<picture>``, with the parts 0 and 1. There are three domains: ``Test``,
and ``SC_group_1`` and ``SC_group_2``, in which breed and place go together. One to one (O2O): a breed is in its
own place in 97 % and 87 % of the pictures of the two groups and in a shared place otherwise. Many to many
(M2M): two breeds share two places, and change them between the groups. ``Test`` has the breeds in other places.

Differs from DomainBed in: where only some pictures of a folder are taken, they are the first by name; there,
the first in the order in which the file system lists them, which differs between machines.

References: Lynch et al.: Spawrious: A Benchmark for Fine Control of Spurious Correlation Biases, 2023.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from ..domains import DataError, DomainSet, FileDomain

_CLASSES = ("bulldog", "corgi", "dachshund", "labrador")
"""In the order of their numbers."""
_BREEDS = ("bulldog", "dachshund", "labrador", "corgi")
"""In the order in which places are listed below and pictures are counted."""
_DOMAINS = ("Test", "SC_group_1", "SC_group_2")
_EACH = 3168
"""Pictures of a breed in a place and part."""
_OWN = (int(0.97 * _EACH), int(0.87 * _EACH))
"""How many of them the two groups of O2O take from a breed's own place."""

Pick: TypeAlias = tuple[int, str, str, int]
"""Part, place, breed, and how many pictures at most."""


@dataclass(frozen=True)
class Challenge:
    """One of the six sets.

    Args:
        group: the places of `_BREEDS` in training, as words.
        test: the same in testing.
        shared: the place of all breeds of the other pictures; empty for M2M.
    """

    group: str
    test: str
    shared: str = ""

    def picks(self, domain: int) -> list[Pick]:
        """What a domain is made of, in order."""
        if domain == 0:
            return [*self._test(0), *self._test(1)]
        own = self._one_to_one(domain - 1) if self.shared else self._many_to_many(self.group, domain - 1)
        return list(own)

    def _test(self, half: int) -> Iterator[Pick]:
        if not self.shared:
            return self._many_to_many(self.test, half)
        return ((half, place, breed, _EACH) for breed, place in zip(_BREEDS, self.test.split(), strict=True))

    def _one_to_one(self, group: int) -> Iterator[Pick]:
        for breed, place in zip(_BREEDS, self.group.split(), strict=True):
            yield group, place, breed, _OWN[group]
        for breed in _BREEDS:
            yield group, self.shared, breed, _EACH - _OWN[group]

    def _many_to_many(self, words: str, group: int) -> Iterator[Pick]:
        a, b, c, d = words.split()
        changed = (a, b, c, d) if group == 0 else (b, a, d, c)
        return ((0, place, breed, _EACH) for breed, place in zip(_BREEDS, changed, strict=True))


CHALLENGES = {
    "SpawriousO2O_easy": Challenge("desert jungle dirt snow", "dirt snow desert jungle", "beach"),
    "SpawriousO2O_medium": Challenge("mountain beach dirt jungle", "jungle dirt beach snow", "desert"),
    "SpawriousO2O_hard": Challenge("jungle mountain snow desert", "mountain snow desert jungle", "beach"),
    "SpawriousM2M_easy": Challenge("desert mountain dirt jungle", "dirt jungle mountain desert"),
    "SpawriousM2M_medium": Challenge("beach snow mountain desert", "desert mountain beach snow"),
    "SpawriousM2M_hard": Challenge("dirt jungle snow beach", "snow beach dirt jungle"),
}
"""By name, as DomainBed has them."""


def spawrious(root: Path, name: str) -> DomainSet:
    """One of `CHALLENGES` from the folder that holds the parts 0 and 1."""
    challenge = CHALLENGES[name]
    domains = []
    for number, domain in enumerate(_DOMAINS):
        paths: list[str] = []
        labels: list[int] = []
        for part, place, breed, most in challenge.picks(number):
            some = _pictures(root, f"{part}/{place}/{breed}")[:most]
            paths += some
            labels += [_CLASSES.index(breed)] * len(some)
        domains.append(FileDomain(domain, root, paths, np.array(labels, dtype=np.int64)))
    return DomainSet(name, _CLASSES, tuple(domains))


def _pictures(root: Path, inside: str) -> list[str]:
    """The pictures of a folder, by name, relative to the root."""
    place = root / inside
    names = sorted(p.name for p in place.glob("*") if p.suffix in (".png", ".jpg", ".jpeg"))
    if not names:
        raise DataError(f"{place} holds no picture; give the folder of Spawrious with <part>/<place>/<breed>.")
    return [f"{inside}/{name}" for name in names]
