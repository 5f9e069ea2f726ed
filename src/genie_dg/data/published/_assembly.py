"""The stages that make a published set out of its archives; each can be repeated after a crash in it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from genie_dg.files import write_json

from ..domains import DataError
from ..image_folders import folders_in, pictures_in
from ..progress import Progress, StageProgress
from . import terra
from .archives import DamagedArchive, extract
from .catalog import PublishedSet, SourceFile
from .duplicates import remove_duplicates
from .fetch import FetchError, fetch


def count_images(folder: Path, domains: tuple[str, ...]) -> dict[str, int]:
    """Pictures in each domain below its class folders; a domain that is not there has none."""
    classes = {d: folders_in(folder / d) if (folder / d).is_dir() else [] for d in domains}
    return {d: sum(len(list(pictures_in(folder / d / k))) for k in classes[d]) for d in domains}


class Stages:
    """Stages that are done, by name, and what the finished work has counted, in a file replaced as a whole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.done: list[str] = []
        self.counts: dict[str, int] = {}
        if path.exists():
            try:
                content = json.loads(path.read_text(encoding="utf-8"))
                self.done = [str(stage) for stage in content["done"]]
                self.counts = {str(domain): int(count) for domain, count in content["counts"].items()}
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                raise DataError(f"{path} cannot be read ({error!r}); remove it and try again.") from error

    def run(self, stage: str, action: Callable[[], None]) -> None:
        """Do a stage unless it is done. It must be possible to repeat the action after a crash in it."""
        if stage not in self.done:
            action()
            self.done.append(stage)
            self.save()

    def save(self) -> None:
        write_json(self.path, {"done": self.done, "counts": self.counts})


@dataclass(frozen=True)
class Assembly:
    """One set that is being put together."""

    row: PublishedSet
    work: Path  # the folder with the archives, and everything that is not finished
    stages: Stages
    progress: StageProgress
    say: Callable[[str], object]  # called with sentences for the user

    @property
    def folder(self) -> Path:
        """The set before it has its name. Other annotations, put by hand, make another folder."""
        return self.work / f"set from {self._archive(self.row.files[-1]).name}"

    def assemble(self, keep_archives: bool) -> None:
        """Everything up to a finished `folder`."""
        if self.stages.counts and not self.folder.exists():
            self._forget()  # an earlier download was finished, and its folder has been removed since
        for file in self.row.files:
            archive = self._archive(file)
            if f"unpack {archive.name}" not in self.stages.done:
                self._fetch(file, archive)
            if file.unpacks_to:
                self.stages.run(f"unpack {archive.name}", partial(self._unpack, file))
                if not keep_archives:
                    archive.unlink(missing_ok=True)
        self.stages.run("arrange", self._arrange_camera_traps if self.row.camera_traps else self._arrange)
        if self.row.duplicates:
            self.stages.run("duplicates", self._remove_duplicates)

    def publish(self, target: Path) -> dict[str, int]:
        """Note the counts, clean up, and let the set take its name as the last act."""
        self.stages.counts = count_images(self.folder, self.row.domains)
        self.stages.save()
        shutil.rmtree(self.work / "unpacked", ignore_errors=True)
        if target.exists():
            target.rmdir()  # an empty folder; rmdir refuses any other
        self.folder.rename(target)
        return self.stages.counts

    def _forget(self) -> None:
        """Begin again from the archives."""
        self.stages.done, self.stages.counts = [], {}
        for file in (self.stages.path, self.work / "duplicates.json"):
            file.unlink(missing_ok=True)

    def _fetch(self, file: SourceFile, path: Path) -> None:
        progress = self._progress(f"fetch {path.name}")
        try:
            fetch(file.mirrors, path, sha256=file.sha256, size=file.size, progress=progress)
        except FetchError as error:
            others = f" (copies in another form: {', '.join(self.row.elsewhere)})" if self.row.elsewhere else ""
            raise FetchError(f"{str(error).removesuffix('.')}{others}.") from error

    def _archive(self, file: SourceFile) -> Path:
        """The archive of a row: its own file, or one that the user has put in its place."""
        for name in file.by_hand:
            if (self.work / name).exists() or f"unpack {name}" in self.stages.done:
                return self.work / name
        return self.work / file.file

    def _unpacked(self, file: SourceFile) -> Path:
        return self.work / "unpacked" / self._archive(file).name

    def _progress(self, what: str) -> Progress:
        return lambda done, total: self.progress(what, done, total)

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
        fits = [top / name for name in file.unpacks_to if (top / name).is_dir()]
        if not fits and not file.becomes:
            near = [top, *sorted(top.glob("*/")), *sorted(top.glob("*/*/"))]
            fits = [path for path in near if all((path / name).is_dir() for name in self.row.domains)]
        if not fits:
            inside = ", ".join(sorted(path.name for path in top.iterdir())[:5]) or "nothing"
            raise DataError(f"{self._archive(file)} has {inside} in it, not {' or '.join(file.unpacks_to)}.")
        return fits[0]

    def _arrange(self) -> None:
        for file in self.row.files:
            home = self.folder / file.becomes
            if file.unpacks_to and not home.exists():
                home.parent.mkdir(parents=True, exist_ok=True)
                self._wanted(file).rename(home)

    def _arrange_camera_traps(self) -> None:
        images, annotations = self.row.files
        files = terra.annotation_files(self._unpacked(annotations))
        progress = self._progress(f"arrange {self.row.name}")
        self.say(terra.build(self._wanted(images), files, self.folder, progress).sentence())

    def _remove_duplicates(self) -> None:
        record = self.work / "duplicates.json"
        self.say(remove_duplicates(self.folder, self.work / self.row.duplicates, record=record).sentence())
