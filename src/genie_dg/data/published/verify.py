"""Is this the published set? Every file is looked at; what differs is named.

A split depends on the number and order of the pictures of a domain, so one missing or extra picture changes
it. `verify` says whether the splits of a folder are the published ones, and if not, why.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NoReturn

from genie_dg.check import folder
from genie_dg.runtime import cores

from ..decode import decode
from ..domains import DataError, Domain, DomainSet, FileDomain
from ..image_folders import is_picture, is_skipped
from ..progress import Advance, silent
from .catalog import PublishedSet

BROKEN = {"empty domain", "missing file", "empty file", "undecodable"}
"""Problems with which a set cannot be used."""


@dataclass
class Verification:
    """What `verify` has seen."""

    counts: dict[str, int] = field(default_factory=dict)  # pictures of each domain
    classes: tuple[str, ...] = ()
    variant: str = ""  # the published version whose counts these are; empty when it is none
    problems: dict[str, list[str]] = field(default_factory=dict)  # kind of problem -> paths or sentences
    splits_differ: bool = False  # from the published ones; never for a user's own folder

    def add(self, kind: str, what: object) -> None:
        self.problems.setdefault(kind, []).append(str(what))

    @property
    def good(self) -> bool:
        """Usable as it is: nothing broken, and the published splits where there are published ones."""
        return not self.splits_differ and not BROKEN & set(self.problems)


def verify(
    root: Path, facts: PublishedSet | None = None, *, deep: bool = True, progress: Advance = silent
) -> Verification:
    """Look at every file below ``root/<domain>/<class>``, and decode every picture if ``deep``.

    ``facts`` is what is published of the set; ``None`` for a user's own folder.
    """
    folder(root, "give the folder that holds the domains", DataError)
    result = Verification()
    wanted = set(facts.classes) if facts else set()
    pictures: list[Path] = []
    classes: set[str] = set()
    for domain in _folders(root, result, facts.domains if facts else None):
        before = len(pictures)
        for name in _folders(root / domain, result, None):
            classes.add(name)
            if wanted and name not in wanted:
                result.add("extra class folder", root / domain / name)
            inside = list(_pictures(root / domain / name, result))
            if not inside:
                result.add("empty class", root / domain / name)
            pictures += inside
        for name in sorted((wanted or classes) - set(os.listdir(root / domain))):
            result.add("missing class", root / domain / name)
        result.counts[domain] = len(pictures) - before
        if len(pictures) == before:
            result.add("empty domain", root / domain)
    if facts is None and not pictures:
        _refuse_layout(root)
    result.classes = tuple(sorted(classes))
    with ThreadPoolExecutor(cores()) as pool:
        problems = pool.map(lambda path: _problem(path, deep, progress), pictures)
        for path, problem in zip(pictures, problems, strict=True):
            if problem:
                result.add(problem, path)
    if facts is not None:
        _compare(result, facts, root)
    return result


def verify_set(data: DomainSet, *, deep: bool = True, progress: Advance = silent) -> Verification:
    """Look at every sample of a set that was opened, whatever it was opened from.

    Args:
        data: the set.
        deep: decode every picture.
        progress: called with how many more were looked at.
    """
    result = Verification(classes=data.classes, variant=data.variant)
    with ThreadPoolExecutor(cores()) as pool:
        for domain in data.domains:
            result.counts[domain.name] = len(domain)
            present = set(domain.labels.tolist())
            for k, name in enumerate(data.classes):
                if k not in present:
                    result.add("missing class", f"{domain.name}: {name}")
            problems = pool.map(partial(_problem_in, domain, deep, progress), range(len(domain)))
            for index, problem in enumerate(problems):
                if problem:
                    result.add(problem, domain.where(index))
    return result


def _problem_in(domain: Domain, deep: bool, progress: Advance, index: int) -> str:
    if isinstance(domain, FileDomain):
        path = domain.root / domain.paths[index]
        return _problem(path, deep, progress) if path.is_file() else "missing file"
    progress(1)
    try:
        if deep:
            domain.read(index)
    except DataError:
        return "undecodable"
    return ""


def _refuse_layout(root: Path) -> NoReturn:
    """Say why a folder without a picture at the right depth is not a set."""
    inside = sorted(entry for entry in root.iterdir() if entry.is_dir() and not is_skipped(entry.name))
    flat = next((entry for entry in inside if any(is_picture(name) for name in os.listdir(entry))), None)
    if flat is not None:
        found = f"{flat} holds pictures itself, as <class>/<picture>, without domains"
    else:
        found = f"{root} holds no picture"
    raise DataError(
        f"{found}; expected {root}/<domain>/<class>/<picture>, so put the classes of each domain into a folder "
        "of its own."
    )


def _folders(folder: Path, result: Verification, wanted: tuple[str, ...] | None) -> list[str]:
    """Sub-folders that count; everything else in the folder is reported."""
    names = []
    for entry in sorted(os.scandir(folder), key=lambda e: e.name):
        if not entry.is_dir() or is_skipped(entry.name):
            result.add("stray", entry.path)
        elif wanted is not None and entry.name not in wanted:
            result.add("extra domain", entry.path)
        else:
            names.append(entry.name)
    for name in wanted or ():
        if name not in names:
            result.add("missing domain", folder / name)
    return names


def _pictures(folder: Path, result: Verification) -> Iterator[Path]:
    for where, _, files in sorted(os.walk(folder, followlinks=True)):
        for name in sorted(files):
            if is_picture(name):
                yield Path(where) / name
            else:
                result.add("stray", Path(where) / name)


def _problem(path: Path, deep: bool, progress: Advance) -> str:
    progress(1)
    if path.stat().st_size == 0:
        return "empty file"
    try:
        if deep:
            decode(path)
    except DataError:
        return "undecodable"
    return ""


def _compare(result: Verification, facts: PublishedSet, root: Path) -> None:
    counts = tuple(result.counts.get(domain, 0) for domain in facts.domains)
    result.variant = facts.variant_of(result.counts)
    shape = {"missing domain", "extra domain", "missing class", "extra class folder"} & set(result.problems)
    classes_fit = len(result.classes) == facts.class_count
    result.splits_differ = not result.variant or bool(shape) or not classes_fit
    if not result.splits_differ:
        return
    for variant, published in facts.variants.items():
        if isinstance(published, int):  # only the total is known
            continue
        for domain, have, want in zip(facts.domains, counts, published, strict=True):
            if have != want:
                sign = f"{abs(want - have):,} {'missing' if have < want else 'too many'}"
                result.add("count", f"{root / domain}: {have:,} pictures, {want:,} in {variant}: {sign}")
    if not classes_fit:
        result.add("count", f"{root}: {len(result.classes)} classes, {facts.class_count} published")
