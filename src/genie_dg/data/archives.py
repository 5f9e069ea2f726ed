"""Unpack a zip or tar file that came from outside, trusting nothing that it says.

Every member is checked by name and kind before it is written, and counted while it is written. All goes to
a hidden folder beside the target, which takes the target's name at the end: a refusal, a crash or a full disk
leaves what existed before as it was. Permission bits are not taken over, and archives in archives stay packed.
"""

from __future__ import annotations

import filecmp
import os
import shutil
import struct
import tarfile
import zlib
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from lzma import LZMAError
from pathlib import Path
from typing import IO, TypeAlias
from zipfile import BadZipFile

from ._alone import alone
from ._members import ArchiveError, DamagedArchive, Member, members, safe_parts

__all__ = ["ArchiveError", "DamagedArchive", "Extracted", "Progress", "extract", "safe_parts"]

Progress: TypeAlias = "Callable[[int, int | None], None]"
"""Called with the bytes done and the bytes in all, or None where that is not known."""

CHUNK = 1 << 20
BIG = 16 << 20
"""Below this many bytes a high compression ratio is harmless: a white picture, an empty table."""

_DAMAGE = (BadZipFile, EOFError, LZMAError, ValueError, struct.error, tarfile.TarError, zlib.error)
"""What the readers of the standard library raise when bytes make no sense."""


@dataclass(frozen=True)
class Extracted:
    """What was written: the number of files and their bytes."""

    files: int
    bytes: int


@dataclass
class _Writer:
    """Writes members below a folder and holds the limits, by the headers and by what really comes."""

    folder: Path
    packed: int
    limit_bytes: int
    limit_files: int
    limit_ratio: int
    step: Callable[[], None]
    entries: int = field(default=0, init=False)
    files: int = field(default=0, init=False)
    total: int = field(default=0, init=False)

    def write(self, member: Member) -> None:
        path = self.folder.joinpath(*safe_parts(member.name))
        self.entries += 1
        if self.entries > self.limit_files:
            raise ArchiveError(f"the member {member.name!r} is one more than the {self.limit_files:,} allowed")
        self._check(member, member.size)
        if member.packed is not None and member.size > max(BIG, self.limit_ratio * member.packed):
            raise self._bomb(member)
        try:
            (path if member.is_folder else path.parent).mkdir(parents=True, exist_ok=True)
            if not member.is_folder:
                with path.open("xb") as file:
                    self._fill(file, member)
                self.files += 1
        except (FileExistsError, NotADirectoryError) as error:
            raise ArchiveError(f"the member {member.name!r} would overwrite another member") from error

    def _fill(self, file: IO[bytes], member: Member) -> None:
        size = 0
        with member.open() as source:
            while data := source.read(CHUNK):
                self._check(member, len(data))
                file.write(data)
                size += len(data)
                self.total += len(data)
                self.step()
        if size != member.size:
            raise DamagedArchive(f"its member {member.name!r} has {size:,} bytes instead of {member.size:,}")

    def _check(self, member: Member, more: int) -> None:
        """Refuse when ``more`` bytes of this member would be too many."""
        total = self.total + more
        if total > self.limit_bytes:
            raise ArchiveError(
                f"the member {member.name!r} brings its contents beyond the {self.limit_bytes:,} bytes allowed"
            )
        if total > max(BIG, self.limit_ratio * self.packed):
            raise self._bomb(member)

    def _bomb(self, member: Member) -> ArchiveError:
        return ArchiveError(
            f"the member {member.name!r} unpacks to over {self.limit_ratio} times its packed size, as bombs do"
        )


def _settle(made: Path, target: Path) -> None:
    """Give the finished folder the target's name, or move its files into a target that exists already."""
    if not os.path.lexists(target):
        made.rename(target)
        return
    files = [Path(folder, name).relative_to(made) for folder, _, names in os.walk(made) for name in names]
    for file in files:
        there = target / file
        if any((target / part).is_symlink() for part in (file, *file.parents[:-1])):
            raise ArchiveError(f"the member {file.as_posix()!r} would be written through a link in {target}")
        if os.path.lexists(there) and not (there.is_file() and filecmp.cmp(made / file, there, shallow=False)):
            raise ArchiveError(f"the member {file.as_posix()!r} would overwrite {there}, which is different")
    for file in files:
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        (made / file).replace(target / file)


def extract(
    archive: Path,
    target: Path,
    *,
    limit_bytes: int = 1 << 37,
    limit_files: int = 1_000_000,
    limit_ratio: int = 200,
    progress: Progress | None = None,
) -> Extracted:
    """Unpack a zip or tar file (plain, gz, bz2, xz) below ``target``: all of it or nothing.

    Args:
        archive: the file; what it is follows from its content, not from its name.
        target: a folder. Where it exists already, files are added to it, equal ones left alone.
        limit_bytes: most bytes that may come out; 128 GiB by default.
        limit_files: most members.
        limit_ratio: most bytes for each packed byte, of a zip's member or of all together, beyond 16 MiB.
        progress: called with the packed bytes read so far and their number.

    Raises:
        ArchiveError: the archive is refused; one sentence names it, the member and the reason.
        DamagedArchive: it is not an archive, truncated or corrupt.
    """
    made = target.parent / f".{target.name}.extracting"
    with ExitStack() as stack:
        stack.enter_context(alone(made.with_name(made.name + ".lock")))
        shutil.rmtree(made, ignore_errors=True)  # left by a process that was killed
        stack.callback(shutil.rmtree, made, ignore_errors=True)
        try:
            made.mkdir()
            file = stack.enter_context(archive.open("rb"))
            size = os.fstat(file.fileno()).st_size

            def step() -> None:
                if progress is not None:
                    progress(file.tell(), size)

            writer = _Writer(made, size, limit_bytes, limit_files, limit_ratio, step)
            with closing(members(file)) as found:
                for member in found:
                    writer.write(member)
            _settle(made, target)
        except DamagedArchive as error:
            raise DamagedArchive(f"{archive} is damaged: {error}; fetch it again.") from error
        except ArchiveError as error:
            raise ArchiveError(f"{archive} is refused: {error}.") from error
        except NotImplementedError as error:
            raise ArchiveError(f"{archive} is packed in a way that is not supported ({error}).") from error
        except _DAMAGE as error:
            raise DamagedArchive(f"{archive} is truncated or corrupt ({error}); fetch it again.") from error
        except OSError as error:
            if error.errno is None:  # bz2 and gzip report nonsense in this way
                raise DamagedArchive(f"{archive} is truncated or corrupt ({error}); fetch it again.") from error
            raise ArchiveError(f"{archive} cannot be unpacked to {target}: {error.strerror}.") from error
    return Extracted(writer.files, writer.total)
