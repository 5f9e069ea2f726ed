"""Decode once: pictures as raw uint8 pixels in one memory-mapped file for each domain.

Two kinds. ``EvalSpec(size)`` stores what evaluation sees, the picture resized to a square, so evaluation from
the cache is equal to decoding, to the bit. ``TrainSpec(limit)`` stores the decoded picture itself where its
shorter side is at most ``limit`` (exact) and a smaller version otherwise (an approximation of cropping the
original).

A cache is named after its files (folder, name, size, time of change) and the specification, and it is never
changed once complete: every picture is compared with its checksum the first time that it is read. The pixels of
one domain are written under another name, and a cache without ``complete.json``, which comes last, does not
count: a build that was killed starts over. One process builds at a time; others wait for the result.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from PIL import __version__ as pillow_version

from genie_dg.files import FileError, lock, read_whole, write_json
from genie_dg.runtime import cores

from .domains import Advance, BytesDomain, DataError, PictureDomain, problem_with, silent

_MOST = 2**31
"""Bytes of a file that describes a cache."""
_AT_ONCE = 32
"""Pictures that are decoded side by side before they are written."""
Pixels = np.ndarray[Any, np.dtype[np.uint8]]


@dataclass(frozen=True)
class EvalSpec:
    """``size`` by ``size`` pixels, planes of red, green and blue."""

    size: int = 224

    def shape(self, height: int, width: int) -> tuple[int, int, int]:
        return 3, self.size, self.size

    def pixels(self, picture: Image.Image) -> Pixels:
        small = picture.resize((self.size, self.size), Image.Resampling.BILINEAR)
        return np.ascontiguousarray(np.asarray(small).transpose(2, 0, 1))


@dataclass(frozen=True)
class TrainSpec:
    """The picture as decoded; shrunk so that its shorter side is ``limit`` when it is longer than that."""

    limit: int = 288

    def shape(self, height: int, width: int) -> tuple[int, int, int]:
        short = min(height, width)
        if short <= self.limit:
            return height, width, 3
        return round(height * self.limit / short), round(width * self.limit / short), 3

    def pixels(self, picture: Image.Image) -> Pixels:
        height, width, _ = self.shape(picture.height, picture.width)
        if (width, height) != picture.size:
            picture = picture.resize((width, height), Image.Resampling.BILINEAR)
        return np.array(picture)


Spec = EvalSpec | TrainSpec


@dataclass(frozen=True)
class Cache:
    """A complete cache. ``row(i)`` is a view of the mapped file; nothing is copied."""

    path: Path
    shapes: np.ndarray[Any, Any]
    offsets: np.ndarray[Any, Any]
    originals: np.ndarray[Any, Any]  # [n, 2]: height and width of the picture in its file
    data: Pixels
    checksums: Sequence[int]  # of each row
    checked: bytearray = field(default_factory=bytearray)  # the rows that were compared with theirs

    def __len__(self) -> int:
        return len(self.shapes)

    def row(self, index: int) -> Pixels:
        pixels = self.data[int(self.offsets[index]) : int(self.offsets[index + 1])]
        if not self.checked[index]:
            if zlib.crc32(pixels.data) != self.checksums[index]:
                raise _damaged(self.path, f"picture {index} was changed after it was written")
            self.checked[index] = 1
        return pixels.reshape(self.shapes[index])


def cache_root(given: str | Path | None = None) -> Path:
    """Where caches live: as given, else $GENIE_DG_CACHE, else genie-dg in the user's cache folder."""
    if given is not None or os.environ.get("GENIE_DG_CACHE"):
        return Path(given if given is not None else os.environ["GENIE_DG_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "genie-dg"


def open_cache(
    domain: PictureDomain, spec: Spec, folder: str | Path | None = None, progress: Advance = silent
) -> Cache:
    """The cache of a domain in a folder of caches (see `cache_root`); one that is missing is built first."""
    name = "".join(c if c.isalnum() else "_" for c in domain.name)[:40]
    place = cache_root(folder) / f"{name}-{_key(domain, spec)}"
    if not (place / "complete.json").is_file():
        with lock(place / "lock", f"builds {place}", wait=-1):
            if not (place / "complete.json").is_file():
                _build(domain, spec, place, progress)
    return _opened(place, len(domain), spec)


def _key(domain: PictureDomain, spec: Spec) -> str:
    def identity(index: int) -> str:
        if isinstance(domain, BytesDomain):
            return hashlib.blake2b(domain.files[index]).hexdigest()
        path = domain.root / domain.paths[index]
        try:
            status = path.stat()
        except OSError as error:
            raise problem_with(path, error) from error
        return json.dumps((domain.paths[index], status.st_size, status.st_mtime_ns))

    root = "" if isinstance(domain, BytesDomain) else str(domain.root.resolve())
    facts = {"spec": type(spec).__name__, **asdict(spec), "pillow": pillow_version, "root": root}
    with ThreadPoolExecutor(cores()) as pool:
        parts = [json.dumps(facts, sort_keys=True), *pool.map(identity, range(len(domain)))]
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=12).hexdigest()


def _build(domain: PictureDomain, spec: Spec, place: Path, progress: Advance) -> None:
    def decoded(index: int) -> tuple[tuple[int, int], Pixels]:
        picture = domain.read(index)
        return (picture.height, picture.width), spec.pixels(picture)

    part = place / "pixels.part"
    originals: list[tuple[int, int]] = []
    checksums: list[int] = []
    try:
        with part.open("wb") as file, ThreadPoolExecutor(cores()) as pool:
            for start in range(0, len(domain), _AT_ONCE):
                rows = range(start, min(start + _AT_ONCE, len(domain)))
                for size, pixels in pool.map(decoded, rows):
                    file.write(pixels.data)
                    originals.append(size)
                    checksums.append(zlib.crc32(pixels.data))
                progress(len(rows))
            file.flush()
            os.fsync(file.fileno())
        part.replace(place / "pixels.u8")
    except OSError as error:
        part.unlink(missing_ok=True)
        raise FileError(
            f"{place} cannot be written ({error.strerror or error}); free some space or name another folder "
            "with --cache or GENIE_DG_CACHE."
        ) from error
    write_json(place / "complete.json", {"spec": repr(spec), "originals": originals, "checksums": checksums})


def _opened(place: Path, count: int, spec: Spec) -> Cache:
    path = place / "pixels.u8"
    try:
        facts = json.loads(read_whole(place / "complete.json", _MOST))
        checksums = [int(crc) for crc in facts["checksums"]]
        originals = np.array(facts["originals"], dtype=np.int64).reshape(count, 2)
        size = path.stat().st_size
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise _damaged(place, f"a file of it cannot be read: {error!r}") from error
    shapes = np.array([spec.shape(height, width) for height, width in originals.tolist()]).reshape(count, 3)
    offsets = np.cumsum([0, *shapes.prod(axis=1)], dtype=np.int64)
    if (size, len(checksums)) != (int(offsets[-1]), count):
        raise _damaged(place, "its sizes do not agree")
    # Copy-on-write: torch asks for writable memory, and whatever is written stays out of the file.
    data = np.memmap(path, dtype=np.uint8, mode="c") if size else np.empty(0, dtype=np.uint8)
    return Cache(place, shapes, offsets, originals, data, checksums, bytearray(count))


def _damaged(place: Path, why: str) -> DataError:
    return DataError(f"{place} is damaged ({why}); remove it, and it is built again.")
