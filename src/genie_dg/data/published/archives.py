"""Unpack a zip or tar file from outside, trusting nothing that it says.

Every member is checked by name, kind and size before ``zipfile`` or ``tarfile`` (with its ``data`` filter)
writes it. All goes to a hidden folder beside the target, which takes the target's name at the end: a refusal, a
crash or a full disk leaves what existed before as it was. Reasons are clauses without a full stop; `extract`
makes the sentence around them.
"""

from __future__ import annotations

import bz2
import filecmp
import gzip
import lzma
import os
import shutil
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any

from genie_dg.files import lock

from ..domains import DataError
from ..progress import Progress, silent

MOST_BYTES, MOST_MEMBERS, MOST_RATIO = 1 << 37, 1_000_000, 200
"""What may come out of an archive: bytes, members, and bytes for each packed byte (beyond `BIG`)."""

MOST_READ = 16 << 20
"""Longest single read that a tar header may ask for, and the most that may follow the end of a tar file."""

BIG = 16 << 20
"""Below this many bytes a high compression ratio is harmless: a white picture, an empty table."""

_DAMAGE = (zipfile.BadZipFile, EOFError, lzma.LZMAError, ValueError, struct.error, tarfile.TarError, zlib.error)
"""What the readers of the standard library raise when bytes make no sense."""


class ArchiveError(DataError):
    """The archive is refused; nothing of it was unpacked."""


class DamagedArchive(ArchiveError):
    """The file is not an archive, or not a whole one: fetching it again may help."""


def safe_parts(name: str) -> tuple[str, ...]:
    r"""The parts of a relative path that stays below its root; anything else raises `ArchiveError`.

    The standard library repairs such names silently, and repaired names can collide; here they are refused.

    >>> safe_parts("photo/./dog/1.jpg")
    ('photo', 'dog', '1.jpg')
    """
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    shown = repr(name if len(name) <= 120 else name[:117] + "...")
    if name.startswith("/") or name[1:2] == ":":
        raise ArchiveError(f"the path {shown} is absolute, and only paths below the folder are allowed")
    if "\\" in name or "\0" in name:
        raise ArchiveError(f"the path {shown} has a backslash or a zero byte, which may hide another path")
    if ".." in parts:
        raise ArchiveError(f"the path {shown} leaves the folder by '..', which is not allowed")
    if len(name) > 1024 or any(len(os.fsencode(part)) > 255 for part in parts):
        raise ArchiveError(f"the path {shown} is too long (255 bytes a part and 1024 letters are allowed)")
    return parts


@dataclass
class _Unpacker:
    """Writes members below a folder, within the limits; ``packed`` is the size of the archive."""

    folder: Path
    file: IO[bytes]
    packed: int
    progress: Progress
    members: int = field(default=0, init=False)
    total: int = field(default=0, init=False)

    def add(
        self, name: str, is_folder: bool, size: int, write: Callable[[], object], packed: int | None = None
    ) -> None:
        """Check a member by its header and write it; neither library writes more than the header claims."""
        path = self.folder.joinpath(*safe_parts(name))
        self._check(name, size, packed)
        try:
            (path if is_folder else path.parent).mkdir(parents=True, exist_ok=True)
            if not is_folder:
                path.touch(exist_ok=False)
        except (FileExistsError, NotADirectoryError) as error:
            raise ArchiveError(f"the member {name!r} would overwrite another member") from error
        if not is_folder:
            write()
            if (written := path.stat().st_size) != size:
                raise DamagedArchive(f"its member {name!r} has {written:,} bytes instead of {size:,}")
            self.total += size
        self.progress(self.file.tell(), self.packed)

    def _check(self, name: str, size: int, packed: int | None) -> None:
        self.members += 1
        if self.members > MOST_MEMBERS:
            raise ArchiveError(f"the member {name!r} is one more than the {MOST_MEMBERS:,} allowed")
        if self.total + size > MOST_BYTES:
            raise ArchiveError(f"the member {name!r} goes beyond the {MOST_BYTES:,} bytes allowed in all")
        alone = packed is not None and size > max(BIG, MOST_RATIO * packed)
        if alone or self.total + size > max(BIG, MOST_RATIO * self.packed):
            raise ArchiveError(f"the member {name!r} unpacks to over {MOST_RATIO} times its packed size")

    def unpack(self) -> None:
        """Write all members, by what the file is and not by what it is called."""
        head = self.file.read(512)
        self.file.seek(0)
        if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
            return self._unzip()
        openers: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
        for magic, opener in openers.items():
            if head.startswith(magic):
                with opener(self.file, "rb") as plain:
                    return self._untar(_Forward(plain))
        if head[257:262] == b"ustar":
            return self._untar(_Forward(self.file))
        is_page = b"<html" in head.lower() or b"<!doctype" in head.lower()
        raise DamagedArchive(f"it is {'a web page' if is_page else 'neither a zip nor a tar file'}")

    def _unzip(self) -> None:
        with zipfile.ZipFile(self.file) as archive:
            for info in archive.infolist():
                kind = stat.S_IFMT(info.external_attr >> 16)
                if kind == stat.S_IFLNK:
                    raise _refusal(info.filename, "a symbolic link")
                if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                    raise _refusal(info.filename, "a special file")
                if info.flag_bits & 1:
                    raise _refusal(info.filename, "encrypted")
                # The name as it was stored: zipfile cuts its own copy at a zero byte.
                name, is_folder = info.orig_filename, info.is_dir() or kind == stat.S_IFDIR
                write = partial(archive.extract, info, self.folder)
                self.add(name, is_folder, info.file_size, write, info.compress_size)

    def _untar(self, stream: _Forward) -> None:
        source: Any = stream  # all that tarfile uses of a file when it reads from front to back
        with tarfile.open(fileobj=source, mode="r:") as archive:
            while (info := archive.next()) is not None:
                if info.issym() or info.islnk():  # tarfile's filter lets those that stay inside pass
                    raise _refusal(info.name, "a symbolic link" if info.issym() else "a hard link")
                if info.issparse():
                    raise _refusal(info.name, "a sparse file")
                write = partial(archive.extract, info, self.folder, set_attrs=False, filter="data")
                self.add(info.name, info.isdir(), info.size, write)
                archive.members = []  # type: ignore[attr-defined]  # tarfile would keep every header
        stream.check_end()


def _refusal(name: str, what: str) -> ArchiveError:
    return ArchiveError(f"the member {name!r} is {what}, and only plain files and folders are allowed")


@dataclass
class _Forward:
    """A stream for tarfile that never goes back, remembers its last read and refuses giant headers."""

    stream: IO[bytes]
    last: bytes = b""

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= MOST_READ:
            raise DamagedArchive(f"one of its headers claims {size:,} bytes")
        self.last = self.stream.read(size)
        return self.last

    def seek(self, position: int) -> int:
        if position < self.stream.tell():
            raise DamagedArchive("its members overlap")
        return self.stream.seek(position)

    def tell(self) -> int:
        return self.stream.tell()

    def check_end(self) -> None:
        """Check that a block of zeros was the end, and little follows: tarfile takes a broken header for it."""
        if self.last != bytes(tarfile.BLOCKSIZE):
            raise DamagedArchive("it breaks off before its end")
        rest = 0
        while more := len(self.read(1 << 20)):  # to the end of the file, where gzip has its checksum
            rest += more
            if rest > MOST_READ:
                raise DamagedArchive("more than padding follows its end")


def _move_into(target: Path, folder: Path) -> None:
    """Give the finished folder the target's name, or move its files into a target that exists already."""
    if not os.path.lexists(target):
        folder.rename(target)
        return
    files = [Path(place, name).relative_to(folder) for place, _, names in os.walk(folder) for name in names]
    for file in files:
        there = target / file
        if any((target / part).is_symlink() for part in (file, *file.parents[:-1])):
            raise ArchiveError(f"the member {file.as_posix()!r} would be written through a link in {target}")
        same = there.is_file() and filecmp.cmp(folder / file, there, shallow=False)
        if os.path.lexists(there) and not same:
            raise ArchiveError(f"the member {file.as_posix()!r} would overwrite {there}, which is different")
    for file in files:
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).replace(target / file)


def extract(archive: Path, target: Path, progress: Progress = silent) -> None:
    """Unpack a zip or tar file (plain, gz, bz2, xz) below ``target``: all of it or nothing.

    Args:
        archive: the file; what it is follows from its content, not from its name.
        target: a folder. Where it exists already, files are added to it, equal ones left alone.
        progress: called after each member with the packed bytes read so far and their number.
    """
    folder = target.parent / f".{target.name}.extracting"
    with ExitStack() as stack:
        stack.enter_context(lock(folder.with_name(folder.name + ".lock"), f"unpacks {archive} to {target}"))
        shutil.rmtree(folder, ignore_errors=True)  # left by a process that was killed
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        try:
            folder.mkdir()
            file = stack.enter_context(archive.open("rb"))
            _Unpacker(folder, file, os.fstat(file.fileno()).st_size, progress).unpack()
            _move_into(target, folder)
        except DamagedArchive as error:
            raise DamagedArchive(f"{archive} is damaged: {error}; fetch it again.") from error
        except (ArchiveError, tarfile.FilterError) as error:
            raise ArchiveError(f"{archive} is refused: {error}.") from error
        except NotImplementedError as error:
            raise ArchiveError(f"{archive} is packed in a way that is not supported ({error}).") from error
        except (*_DAMAGE, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:  # bz2 and gzip report nonsense without
                raise ArchiveError(f"{archive} cannot be unpacked to {target}: {error.strerror}.") from error
            raise DamagedArchive(f"{archive} is truncated or corrupt ({error}); fetch it again.") from error
