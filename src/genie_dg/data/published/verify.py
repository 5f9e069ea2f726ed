"""Can it be trained on, and is it the published set? Every sample is looked at; what differs is named.

A split depends on the number and order of the pictures of a domain, so one missing or extra picture changes
it. `verify` says whether the splits of a set are the published ones, and if not, why.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from genie_dg.runtime import cores

from ..domains import Advance, DataError, Domain, DomainSet, FileDomain, silent
from ..image_folders import is_skipped
from .catalog import PublishedSet

_UNUSABLE = {"missing or empty file", "undecodable", "few rows"}
"""Problems with which a set cannot be used."""


@dataclass
class Verification:
    """What `verify` has seen.

    Args:
        counts: samples of each domain.
        classes: in order.
        problems: by kind, paths or sentences.
        published_splits: whether the splits are the published ones; ``None`` where there are none.
    """

    counts: dict[str, int]
    classes: tuple[str, ...]
    problems: dict[str, list[str]] = field(default_factory=dict)
    published_splits: bool | None = None

    def add(self, kind: str, what: object) -> None:
        self.problems.setdefault(kind, []).append(str(what))

    @property
    def good(self) -> bool:
        """Usable as it is: nothing broken, and the published splits where there are published ones."""
        return self.published_splits is not False and not _UNUSABLE & set(self.problems)


def verify(
    data: DomainSet,
    facts: PublishedSet | None = None,
    folder: Path | None = None,
    *,
    deep: bool = True,
    progress: Advance = silent,
) -> Verification:
    """Look at every sample of a set.

    Args:
        data: the set, opened.
        facts: what is published of it; ``None`` for a user's own.
        folder: the folder that holds nothing but the set, in which other files are reported.
        deep: decode every picture.
        progress: called with how many more were looked at.
    """
    result = Verification({domain.name: len(domain) for domain in data.domains}, data.classes)
    with ThreadPoolExecutor(cores()) as pool:
        for domain in data.domains:
            for k in sorted(set(range(len(data.classes))) - set(domain.labels.tolist())):
                result.add("missing class", f"{domain.name}: {data.classes[k]}")
            problems = pool.map(partial(_problem_with, domain, deep, progress), range(len(domain)))
            for index, problem in enumerate(problems):
                if problem:
                    result.add(problem, domain.where(index))
    if folder is not None:
        named = {domain.where(k) for domain in data.domains for k in range(len(domain))}
        for path in _strays(folder, named):
            result.add("stray", path)
    if facts is not None:
        _compare(result, facts, data.variant)
    return result


def _problem_with(domain: Domain, deep: bool, progress: Advance, index: int) -> str:
    """What is wrong with one sample; empty when nothing is."""
    progress(1)
    if isinstance(domain, FileDomain):
        path = domain.root / domain.paths[index]
        if not path.is_file() or path.stat().st_size == 0:
            return "missing or empty file"
    try:
        if deep:
            domain.read(index)
    except DataError:
        return "undecodable"
    return ""


def _strays(folder: Path, named: set[str]) -> list[str]:
    """What is in a folder and not in the set: skipped folders, and files that are no picture of a class."""
    strays = []
    for where, folders, files in os.walk(folder, followlinks=True):
        skipped = [name for name in folders if is_skipped(name)]
        folders[:] = sorted(set(folders) - set(skipped))
        strays += [os.path.join(where, name) for name in sorted(skipped + files)]
    return [path for path in strays if path not in named]


def _compare(result: Verification, facts: PublishedSet, variant: str) -> None:
    """Name what differs from every published version of the set."""
    result.published_splits = bool(variant)
    if variant:
        return
    for kind, published, present in (
        ("domain", set(facts.domains), set(result.counts)),
        ("class", set(facts.classes or result.classes), set(result.classes)),
    ):
        for what, names in ((f"missing {kind}", published - present), (f"extra {kind}", present - published)):
            for name in sorted(names):
                result.add(what, name)
    for name, counts in facts.variants.items():
        for domain, count in zip(facts.domains, counts, strict=True) if isinstance(counts, tuple) else ():
            if result.counts.get(domain, 0) != count:
                result.add("count", f"{domain}: {result.counts.get(domain, 0):,} pictures, {count:,} in {name}")
    if len(result.classes) != facts.class_count:
        result.add("count", f"{len(result.classes)} classes, {facts.class_count} published")
