"""Is this the published set? Every file is looked at; what differs is named.

A split depends on the number and order of the pictures of a domain, so one missing or extra picture changes
it. `verify` says whether the splits of a folder are the published ones, and if not, why.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from .catalog import PublishedSet
from .decode import decode
from .digests import Progress, threads
from .domains import DataError
from .image_folders import is_passed_over, is_picture


@dataclass
class Report:
    """What `verify` found.

    Args:
        counts: pictures of each domain.
        variant: the published version whose counts these are; empty when it is none, or when none is known.
        problems: kind of problem -> paths or sentences.
        splits_differ: whether a split would differ from the published one (never for a user's own folder).
    """

    counts: dict[str, int] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    variant: str = ""
    problems: dict[str, list[str]] = field(default_factory=dict)
    splits_differ: bool = False

    def add(self, kind: str, what: object) -> None:
        self.problems.setdefault(kind, []).append(str(what))

    @property
    def good(self) -> bool:
        """Usable as it is: nothing broken, and the published splits where there are published ones."""
        return (
            not self.splits_differ
            and not self.problems.get("empty file")
            and not self.problems.get("undecodable")
        )


def verify(
    root: Path, facts: PublishedSet | None = None, *, deep: bool = True, progress: Progress | None = None
) -> Report:
    """Look at every file below ``root/<domain>/<class>``.

    Args:
        root: the folder of domains.
        facts: what is published of it; ``None`` for a user's own folder.
        deep: decode every picture; otherwise only sizes are looked at.
        progress: called with the number of pictures looked at.
    """
    if not root.is_dir():
        raise DataError(f"{root} is no folder; give the folder that holds the domains.")
    report = Report()
    domains = _folders(root, report, facts.domains if facts else None)
    wanted = set(facts.classes) if facts and facts.classes else None
    pictures: list[Path] = []
    classes: set[str] = set()
    for domain in domains:
        mine: list[Path] = []
        for name in _folders(root / domain, report, None):
            classes.add(name)
            if wanted is not None and name not in wanted:
                report.add("extra class folder", root / domain / name)
            inside = list(_pictures(root / domain / name, report))
            if not inside:
                report.add("empty class", root / domain / name)
            mine += inside
        for name in sorted((wanted or classes) - set(os.listdir(root / domain))):
            report.add("missing class", root / domain / name)
        report.counts[domain] = len(mine)
        pictures += mine
    report.classes = tuple(sorted(classes))
    with ThreadPoolExecutor(threads()) as pool:
        for path, problem in zip(
            pictures, pool.map(lambda p: _problem(p, deep, progress), pictures), strict=True
        ):
            if problem is not None:
                report.add(problem, path)
    if facts is not None:
        _compare(report, facts, root)
    return report


def _folders(folder: Path, report: Report, wanted: tuple[str, ...] | None) -> list[str]:
    """Sub-folders that count; everything else in the folder is reported."""
    names = []
    for entry in sorted(os.scandir(folder), key=lambda e: e.name):
        if not entry.is_dir() or is_passed_over(entry.name):
            report.add("stray", entry.path)
        elif wanted is not None and entry.name not in wanted:
            report.add("extra domain", entry.path)
        else:
            names.append(entry.name)
    for name in wanted or ():
        if name not in names:
            report.add("missing domain", folder / name)
    return names


def _pictures(folder: Path, report: Report) -> Iterator[Path]:
    for where, _, files in sorted(os.walk(folder, followlinks=True)):
        for name in sorted(files):
            if is_picture(name):
                yield Path(where) / name
            else:
                report.add("stray", Path(where) / name)


def _problem(path: Path, deep: bool, progress: Progress | None) -> str | None:
    if progress is not None:
        progress(1)
    if path.stat().st_size == 0:
        return "empty file"
    if deep:
        try:
            decode(path)
        except DataError:
            return "undecodable"
    return None


def _compare(report: Report, facts: PublishedSet, root: Path) -> None:
    counts = tuple(report.counts.get(domain, 0) for domain in facts.domains)
    report.variant = facts.variant_of(report.counts)
    shape = {"missing domain", "extra domain", "missing class", "extra class folder"} & set(report.problems)
    classes_fit = len(report.classes) == facts.class_count
    if not report.variant or shape or not classes_fit:
        report.splits_differ = True
        exact = {v: c for v, c in facts.variants.items() if not isinstance(c, int)}
        for variant, published in exact.items():
            for domain, have, want in zip(facts.domains, counts, published, strict=True):
                if have != want:
                    sign = f"{abs(want - have):,} {'missing' if have < want else 'too many'}"
                    report.add(
                        "count",
                        f"{root / domain}: {have:,} pictures, {want:,} in {variant}: {sign}",
                    )
        if not classes_fit:
            report.add("count", f"{root}: {len(report.classes)} classes, {facts.class_count} published")
