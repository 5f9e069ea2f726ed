"""What is in a zip or tar file, one member after the other; what is not a plain file or folder is refused.

Reasons are clauses without a full stop; `genie_dg.data.archives.extract` makes the sentence around them.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import stat
import tarfile
import zipfile
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import IO, Any

from .domains import DataError

MOST_READ = 16 << 20
"""Longest single read that a tar header may ask for, and the most that may follow the end of a tar file."""


class ArchiveError(DataError):
    """The archive is refused; nothing of it was unpacked."""


class DamagedArchive(ArchiveError):
    """The file is not an archive, or not a whole one: fetching it again may help."""


@dataclass(frozen=True)
class Member:
    """One entry. ``size`` is what the header claims, ``packed`` what it takes in the archive, where known."""

    name: str
    is_folder: bool
    size: int
    packed: int | None
    open: Callable[[], IO[bytes]]


def safe_parts(name: str) -> tuple[str, ...]:
    r"""The parts of a relative path that stays below its root; anything else raises `ArchiveError`.

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
        raise ArchiveError(
            f"the path {shown} is too long (255 bytes a part and 1024 letters in all are allowed)"
        )
    return parts


def _refuse(name: str, what: str) -> ArchiveError:
    return ArchiveError(f"the member {name!r} is {what}, and only plain files and folders are allowed")


def _zip_members(file: IO[bytes]) -> Generator[Member, None, None]:
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            kind = stat.S_IFMT(info.external_attr >> 16)
            if kind == stat.S_IFLNK:
                raise _refuse(info.filename, "a symbolic link")
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise _refuse(info.filename, "a device or a pipe")
            if info.flag_bits & 1:
                raise _refuse(info.filename, "encrypted")

            def opened(info: zipfile.ZipInfo = info) -> IO[bytes]:
                return archive.open(info)

            # The name as it was stored: zipfile cuts its own copy at a zero byte.
            is_folder = info.is_dir() or kind == stat.S_IFDIR
            yield Member(info.orig_filename, is_folder, info.file_size, info.compress_size, opened)


class _Forward:
    """A stream for tarfile that never goes back, remembers its last read and refuses giant headers."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream = stream
        self.last = b""

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


def _tar_members(stream: _Forward) -> Generator[Member, None, None]:
    source: Any = stream  # all that tarfile uses of a file when it reads from front to back
    with tarfile.open(fileobj=source, mode="r:") as archive:
        while (info := archive.next()) is not None:
            if info.issym() or info.islnk():
                raise _refuse(info.name, "a symbolic link" if info.issym() else "a hard link")
            if not (info.isfile() or info.isdir()):
                raise _refuse(info.name, "a device or a pipe")
            if info.issparse():
                raise _refuse(info.name, "a sparse file")

            def opened(info: tarfile.TarInfo = info) -> IO[bytes]:
                found = archive.extractfile(info)
                assert found is not None  # it is None for links and folders only
                return found

            yield Member(info.name, info.isdir(), info.size, None, opened)
            archive.members = []  # type: ignore[attr-defined]  # tarfile would keep every header
    # tarfile takes a broken header for the end; the true end is a block of zeros, before gzip's checksum.
    if stream.last != bytes(tarfile.BLOCKSIZE):
        raise DamagedArchive("it breaks off before its end")
    rest = 0
    while more := len(stream.read(1 << 20)):
        rest += more
        if rest > MOST_READ:
            raise DamagedArchive("more than padding follows its end")


def _compressed_members(file: IO[bytes], opener: Callable[..., Any]) -> Generator[Member, None, None]:
    with opener(file, "rb") as plain:
        yield from _tar_members(_Forward(plain))


def members(file: IO[bytes]) -> Generator[Member, None, None]:
    """The members of an open archive, by what the file is and not by what it is called.

    A member must be read, if at all, before the next one is asked for.
    """
    head = file.read(512)
    file.seek(0)
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _zip_members(file)
    openers: dict[bytes, Callable[..., Any]] = {
        b"\x1f\x8b": gzip.open,
        b"BZh": bz2.open,
        b"\xfd7zXZ\x00": lzma.open,
    }
    for magic, opener in openers.items():
        if head.startswith(magic):
            return _compressed_members(file, opener)
    if head[257:262] == b"ustar":
        return _tar_members(_Forward(file))
    is_page = b"<html" in head.lower() or b"<!doctype" in head.lower()
    raise DamagedArchive(f"it is {'a web page' if is_page else 'neither a zip nor a tar file'}")
