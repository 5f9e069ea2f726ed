"""The stages that make a published set out of its archives; each can be repeated after a crash in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

from . import terra
from ._stages import Stages
from .archives import DamagedArchive, Progress, extract
from .catalog import PUBLISHED, PublishedSet
from .domains import DataError
from .duplicates import remove_duplicates
from .image_folders import folders_in, is_picture
from .sources import DUPLICATES, SetSource, SourceFile

Report: TypeAlias = "Callable[[str, int, int | None], None]"
"""Called with what is being done, how much of it is done and how much there is, or None."""


def count_images(folder: Path, domains: tuple[str, ...]) -> dict[str, int]:
    """Pictures in each domain below its class folders; a domain that is not there has none."""
    counts = dict.fromkeys(domains, 0)
    for domain in domains:
        if (folder / domain).is_dir():
            for kind in folders_in(folder / domain):
                for _, _, names in os.walk(folder / domain / kind, followlinks=True):
                    counts[domain] += sum(map(is_picture, names))
    return counts


@dataclass(frozen=True)
class Assembly:
    """One set in the making.

    Args:
        row: its files.
        work: the folder with the archives, and everything that is not finished.
        stages: what is done already.
        report: called as work proceeds.
        tell: called with sentences for the user.
        get: fetches a file of the row to a path.
    """

    row: SetSource
    work: Path
    stages: Stages
    report: Report
    tell: Callable[[str], None]
    get: Callable[[SourceFile, Path], None]

    @property
    def published(self) -> PublishedSet:
        return PUBLISHED[self.row.name]

    @property
    def made(self) -> Path:
        """The set before it has its name. Other annotations, put by hand, make another folder."""
        return self.work / f"set from {self._archive(self.row.files[-1]).name}"

    def forget(self) -> None:
        """Begin again from the archives."""
        self.stages.forget()
        (self.work / "duplicates.json").unlink(missing_ok=True)

    def assemble(self, keep_archives: bool) -> None:
        """Everything up to a finished folder `made`."""
        for file in self.row.files:
            archive = self._archive(file)
            if f"unpack {archive.name}" not in self.stages.done:
                self.get(file, archive)
            if file.unpacks_to:
                self.stages.run(f"unpack {archive.name}", partial(self._unpack, file))
                if not keep_archives:
                    archive.unlink(missing_ok=True)
        self.stages.run("arrange", self._arrange_terra if self.row.name == "TerraIncognita" else self._arrange)
        if any(file.file == DUPLICATES for file in self.row.files):
            self.stages.run("duplicates", self._remove_duplicates)

    def publish(self, target: Path) -> dict[str, int]:
        """Note the counts, clean up, and let the set take its name as the last act."""
        self.stages.counts = count_images(self.made, self.published.domains)
        self.stages.save()
        shutil.rmtree(self.work / "unpacked", ignore_errors=True)
        if target.exists():
            target.rmdir()  # an empty folder; rmdir refuses any other
        self.made.rename(target)
        return self.stages.counts

    def _archive(self, file: SourceFile) -> Path:
        """The archive of a row: its own file, or one that the user has put in its place."""
        for name in file.by_hand:
            if (self.work / name).exists() or f"unpack {name}" in self.stages.done:
                return self.work / name
        return self.work / file.file

    def _unpacked(self, file: SourceFile) -> Path:
        return self.work / "unpacked" / self._archive(file).name

    def _progress(self, what: str) -> Progress:
        return lambda done, total: self.report(what, done, total)

    def _unpack(self, file: SourceFile) -> None:
        archive = self._archive(file)
        try:
            extract(archive, self._unpacked(file), progress=self._progress(f"unpack {archive.name}"))
        except DamagedArchive as error:
            bad = archive.replace(archive.with_name(archive.name + ".bad"))
            raise DamagedArchive(f"{str(error)[:-1]} (it is kept as {bad.name}).") from error

    def _wanted(self, file: SourceFile) -> Path:
        """The folder of an archive that is meant: by its name, or else the one that has all domains in it."""
        top = self._unpacked(file)
        if not top.is_dir():
            raise DataError(f"{top} is gone; remove {self.stages.path} and try again.")
        found = [top / name for name in file.unpacks_to if (top / name).is_dir()]
        if not found and not file.becomes:
            near = [top, *sorted(top.glob("*/")), *sorted(top.glob("*/*/"))]
            found = [path for path in near if all((path / name).is_dir() for name in self.published.domains)]
        if not found:
            inside = ", ".join(sorted(path.name for path in top.iterdir())[:5]) or "nothing"
            raise DataError(f"{self._archive(file)} has {inside} in it, not {' or '.join(file.unpacks_to)}.")
        return found[0]

    def _arrange(self) -> None:
        for file in self.row.files:
            home = self.made / file.becomes
            if file.unpacks_to and not home.exists():
                home.parent.mkdir(parents=True, exist_ok=True)
                self._wanted(file).rename(home)

    def _arrange_terra(self) -> None:
        images, annotations = self.row.files
        found = terra.build(
            self._wanted(images),
            terra.annotation_files(self._unpacked(annotations)),
            self.made,
            link=True,
            progress=self._progress("arrange TerraIncognita"),
        )
        self.tell(found.sentence())

    def _remove_duplicates(self) -> None:
        record = self.work / "duplicates.json"
        self.tell(remove_duplicates(self.made, self.work / DUPLICATES, record=record).sentence())
