"""Bring a published set onto the disk: fetch, unpack, arrange, and only then show it under its name.

Work goes on in ``root/downloads/<set>``, where archives can also be put by hand. What is there says how far the
work is: an archive, a folder that is unpacked, and a folder of the set appear under their names when they are
whole, so the same call after a crash, a kill or Ctrl-C goes on where it stopped.
"""

from __future__ import annotations

import gzip
import lzma
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from genie_dg.files import lock

from ..domains import DataError, silent
from ..image_folders import folders_in, pictures_in
from . import terra
from .catalog import PublishedSet, SourceFile, published_set
from .fetch import Bar, fetch, no_bar

_DAMAGE = (
    *(shutil.ReadError, zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile),
    *(zlib.error, lzma.LZMAError, EOFError),
)
"""What the standard library raises for an archive whose bytes make no sense."""


class DamagedArchive(DataError):
    """The file is not an archive, or not a whole one: fetching it again may help."""


def count_images(folder: Path, domains: tuple[str, ...]) -> dict[str, int]:
    """Pictures in each domain below its class folders; a domain that is not there has none."""
    classes = {d: folders_in(folder / d) if (folder / d).is_dir() else [] for d in domains}
    return {d: sum(len(list(pictures_in(folder / d / k))) for k in classes[d]) for d in domains}


def find_complete(row: PublishedSet, root: Path) -> Path | None:
    """The folder of a set that is there with the published numbers of pictures."""
    folders = (root / name for name in row.folders)
    return next((folder for folder in folders if row.variant_of(count_images(folder, row.domains))), None)


def download(
    name: str,
    root: Path,
    *,
    source: PublishedSet | None = None,
    bar: Bar = no_bar,
    say: Callable[[str], object] = silent,
) -> Path:
    """Bring a set to ``root`` and return its folder; one that is complete already is not fetched again.

    Args:
        name: PACS, VLCS, OfficeHome, TerraIncognita or DomainNet, in any case.
        root: the folder for data sets.
        source: the set with other addresses; by default the one of that name in `PUBLISHED`.
        bar: shows the progress.
        say: called with sentences for the user: counts, variants, duplicates.

    Raises:
        genie_dg.check.GenieError: in one sentence; what was done so far is kept for the next call.
    """
    row = source or published_set(name)
    if complete := find_complete(row, root):
        say(f"{row.name} is complete already in {complete}.")
        return complete
    target, work = root / row.folders[0], root / "downloads" / row.name
    with lock(work / "lock", f"downloads {row.name} to {root}"):
        try:
            if target.exists() and any(target.iterdir()):
                raise DataError(
                    f"{target} is there but does not have the images of {row.name}; look at it with "
                    "genie-dg data verify, then move it away and try again."
                )
            folder = _Assembly(row, work, bar, say).assembled()
            counts = count_images(folder, row.domains)
            shutil.rmtree(work / "unpacked", ignore_errors=True)
            if target.exists():
                target.rmdir()  # an empty folder; rmdir refuses any other
            folder.rename(target)
        except OSError as error:
            raise DataError(f"{error.filename or work} cannot be used: {error.strerror or error}.") from error
    each = ", ".join(f"{domain} {count:,}" for domain, count in counts.items())
    verdict = "as published" if row.variant_of(counts) else "which are not the published numbers"
    say(f"{row.name} is in {target} with {sum(counts.values()):,} images ({each}), {verdict}.")
    return target


@dataclass(frozen=True)
class _Assembly:
    """One set that is being put together in a folder for all that is not finished."""

    row: PublishedSet
    work: Path
    bar: Bar
    say: Callable[[str], object]

    def assembled(self) -> Path:
        """The folder of the finished set, before it has its name."""
        # Other annotations, put by hand, make another folder.
        folder = self.work / f"set from {self._archive(self.row.files[-1]).name}"
        if self.row.camera_traps:
            images, annotations = map(self._unpacked, self.row.files)
            if missing := terra.arrange(images, annotations, folder, self.bar):
                self.say(f"{missing:,} images that the annotations name are missing.")
            return folder
        for file in self.row.files:
            home = folder / file.becomes
            if file.file == self.row.duplicates:
                removed = remove_listed(folder, self._fetched(file))
                self.say(f"{removed:,} duplicates were removed.")
            elif not home.exists():
                wanted = self._wanted(self._unpacked(file), file)
                home.parent.mkdir(parents=True, exist_ok=True)
                wanted.rename(home)
        return folder

    def _archive(self, file: SourceFile) -> Path:
        """The archive of a row: its own file, or one that the user has put in its place."""
        by_hand = (self.work / name for name in file.by_hand)
        return next((path for path in by_hand if path.exists()), self.work / file.file)

    def _fetched(self, file: SourceFile) -> Path:
        archive = self._archive(file)
        if archive.name in file.by_hand:
            return archive
        return fetch(file, archive, self.bar)

    def _unpacked(self, file: SourceFile) -> Path:
        """The folder with the contents of an archive, which is fetched and unpacked first."""
        folder = self.work / "unpacked" / self._archive(file).name
        if not folder.exists():
            archive = self._fetched(file)
            with self.bar(f"unpack {archive.name}", None):
                unpack(archive, folder)
        return folder

    def _wanted(self, top: Path, file: SourceFile) -> Path:
        """The folder of an archive that is meant: by its name, or the one that has all domains in it."""
        if file.becomes:
            fits = [top / file.becomes] if (top / file.becomes).is_dir() else []
        else:
            near = [top, *sorted(top.glob("*/")), *sorted(top.glob("*/*/"))]
            fits = [path for path in near if all((path / name).is_dir() for name in self.row.domains)]
        if not fits:
            inside = ", ".join(sorted(path.name for path in top.iterdir())[:5]) or "nothing"
            raise DataError(
                f"{self._archive(file)} has {inside} in it, not "
                f"{file.becomes or ' and '.join(self.row.domains)}; "
                "remove it, or put the right file in its place."
            )
        return fits[0]


def unpack(archive: Path, target: Path) -> None:
    """Unpack a zip or tar file from outside to a new folder: all of it or nothing.

    No member is written outside the folder: the standard library skips such names in a zip file, and refuses
    them, as well as links that lead out and devices, in a tar file (its ``data`` filter).
    """
    part = target.with_name(f"{target.name}.part")
    shutil.rmtree(part, ignore_errors=True)  # left by a process that was killed
    part.mkdir(parents=True)
    try:
        if archive.suffix == ".zip":
            shutil.unpack_archive(archive, part)
        else:
            with tarfile.open(archive) as tar:
                tar.extractall(part, filter="data")
                while tar.fileobj and tar.fileobj.read(2**20):
                    pass  # gzip compares its checksum at the very end, which tarfile does not read
    except _DAMAGE as error:
        shutil.rmtree(part, ignore_errors=True)
        bad = archive.replace(archive.with_name(f"{archive.name}.bad"))
        raise DamagedArchive(
            f"{archive} is damaged ({str(error).splitlines()[0]}); it is kept as {bad.name}, and the "
            "same command fetches it again."
        ) from error
    part.rename(target)


def remove_listed(root: Path, listing: Path) -> int:
    """Remove the files below ``root`` that a list names, one path a line; gives how many were there.

    DomainBed ignores a listed file that is not there, so a wrong folder removes nothing and nobody notices;
    here the counts of what remains are compared with the published ones at the end.
    """
    lines = (line.strip() for line in listing.read_text(encoding="utf-8").splitlines())
    paths = [root / line for line in lines if line]
    outside = [path for path in paths if not path.resolve().is_relative_to(root.resolve())]
    if outside:
        raise DataError(f"{listing} names {outside[0]}, which is outside {root}; nothing was removed.")
    there = [path for path in dict.fromkeys(paths) if path.is_file()]
    for path in there:
        path.unlink()
    return len(there)
