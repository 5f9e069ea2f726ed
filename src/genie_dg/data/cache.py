"""Decode once: pictures as raw uint8 pixels in one memory-mapped file for each domain.

Two kinds. ``EvalSpec(size)`` stores what evaluation sees, the picture resized to a square, so evaluation from
the cache is equal to decoding, to the bit. ``TrainSpec(limit)`` stores the decoded picture itself where its
shorter side is at most ``limit`` (exact) and a smaller version otherwise (an approximation of cropping the
original).

A cache is named after the contents of the files and the specification, and it is never changed once complete:
every picture is compared with its checksum the first time that it is read. The pixels of one domain are written
under another name, and a cache without ``complete.json``, which comes last, does not count: a build that was
killed starts over. One process builds at a time; others wait for the result.

The digests of the files are kept in the folder of caches as well, one file for each domain folder; a picture
that still has the size and modification time it had then is not read again.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image
from PIL import __version__ as pillow_version

from genie_dg.files import FileError, lock, read_whole, write_json, write_whole
from genie_dg.runtime import cores

from .domains import (
    UNREADABLE,
    Advance,
    BytesDomain,
    DataError,
    FileDomain,
    PictureDomain,
    problem_with,
    silent,
)

_MOST = 2**31
"""Bytes of a file that describes a cache or holds digests."""
_AT_ONCE = 32
"""Pictures that are decoded side by side before they are written."""
Pixels = np.ndarray[Any, np.dtype[np.uint8]]


class PictureFacts(NamedTuple):
    """What is known of one picture."""

    bytes: int
    modified: int  # nanoseconds; 0 for a picture in memory
    digest: str
    height: int
    width: int


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


def cache_size(pictures: Sequence[PictureFacts], spec: Spec) -> int:
    """Bytes that a cache takes."""
    return int(_offsets(pictures, spec)[-1])


def open_cache(
    domain: PictureDomain, spec: Spec, folder: str | Path | None = None, progress: Advance = silent
) -> Cache:
    """The cache of a domain in a folder of caches (see `cache_root`); one that is missing is built first."""
    root = cache_root(folder)
    pictures = examine(domain, root)
    name = "".join(c if c.isalnum() else "_" for c in domain.name)[:40]
    place = root / f"{name}-{_key(pictures, spec)}"
    if not (place / "complete.json").is_file():
        with lock(place / "lock", f"builds {place}", wait=-1):
            if not (place / "complete.json").is_file():
                _build(domain, pictures, spec, place, progress)
    return _opened(place, pictures, spec)


def _key(pictures: Sequence[PictureFacts], spec: Spec) -> str:
    facts = {"spec": type(spec).__name__, **asdict(spec), "pillow": pillow_version}
    return _digest((json.dumps(facts, sort_keys=True) + "".join(p.digest for p in pictures)).encode(), 12)


def _build(
    domain: PictureDomain, pictures: Sequence[PictureFacts], spec: Spec, place: Path, progress: Advance
) -> None:
    size, part = cache_size(pictures, spec), place / "pixels.part"
    checksums: list[int] = []
    try:
        with part.open("wb") as file, ThreadPoolExecutor(cores()) as pool:
            if size:
                os.posix_fallocate(file.fileno(), 0, size)  # a full disk is met before the work
            for start in range(0, len(pictures), _AT_ONCE):
                rows = range(start, min(start + _AT_ONCE, len(pictures)))
                for i, pixels in zip(rows, pool.map(lambda i: spec.pixels(domain.read(i)), rows), strict=True):
                    if pixels.shape != spec.shape(pictures[i].height, pictures[i].width):
                        raise DataError(
                            f"{domain.where(i)} changed while it was cached; run the same command again."
                        )
                    file.write(pixels.data)
                    checksums.append(zlib.crc32(pixels.data))
                progress(len(rows))
            file.flush()
            os.fsync(file.fileno())
        part.replace(place / "pixels.u8")
    except OSError as error:
        part.unlink(missing_ok=True)
        raise _cannot_write(place, error) from error
    write_json(place / "complete.json", {"bytes": size, "spec": repr(spec), "checksums": checksums})


def _offsets(pictures: Sequence[PictureFacts], spec: Spec) -> np.ndarray[Any, Any]:
    """Where each row begins in the file, and where the last one ends."""
    return np.cumsum([0, *(math.prod(spec.shape(p.height, p.width)) for p in pictures)], dtype=np.int64)


def _opened(place: Path, pictures: Sequence[PictureFacts], spec: Spec) -> Cache:
    offsets, path = _offsets(pictures, spec), place / "pixels.u8"
    try:
        checksums = json.loads(read_whole(place / "complete.json", _MOST))["checksums"]
        sizes = path.stat().st_size, len(checksums)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise _damaged(place, f"a file of it cannot be read: {error!r}") from error
    if not isinstance(checksums, list) or sizes != (int(offsets[-1]), len(pictures)):
        raise _damaged(place, "its sizes do not agree")
    # Copy-on-write: torch asks for writable memory, and whatever is written stays out of the file.
    data = np.memmap(path, dtype=np.uint8, mode="c") if sizes[0] else np.empty(0, dtype=np.uint8)
    shapes = np.array([spec.shape(p.height, p.width) for p in pictures], dtype=np.int64)
    originals = np.array([(p.height, p.width) for p in pictures])
    return Cache(place, shapes, offsets, originals, data, checksums, bytearray(len(checksums)))


def _damaged(place: Path, why: str) -> DataError:
    return DataError(f"{place} is damaged ({why}); remove it, and it is built again.")


def damaged_rows(cache: Cache) -> list[int]:
    """The pictures whose pixels no longer have the checksum they were written with."""
    spans = zip(cache.offsets[:-1].tolist(), cache.offsets[1:].tolist(), cache.checksums, strict=True)
    return [k for k, (begin, end, crc) in enumerate(spans) if zlib.crc32(cache.data[begin:end].data) != crc]


def examine(domain: PictureDomain, cache: Path, progress: Advance = silent) -> list[PictureFacts]:
    """The digest and size of every picture of a domain, in order.

    Files that cannot be read as a picture raise `DataError`; what was learnt of the others is kept. Pictures in
    memory are examined each time.
    """
    if isinstance(domain, BytesDomain):
        return [_examined_bytes(domain, index, progress) for index in range(len(domain))]
    path = cache / "digests" / f"{_digest(str(domain.root.resolve()).encode(), 12)}.json"
    before = _remembered(path)
    with ThreadPoolExecutor(cores()) as pool:
        outcomes = list(pool.map(lambda file: _examined(domain, file, before, progress), domain.paths))
    now = {file: facts for file, facts in zip(domain.paths, outcomes, strict=True) if isinstance(facts, tuple)}
    if now != before:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _cannot_write(path, error) from error
        digest = _digest(json.dumps(now).encode(), 16)
        write_whole(path, json.dumps({"digest": digest, "files": now}).encode("utf-8"))
    broken = [str(outcome) for outcome in outcomes if isinstance(outcome, DataError)]
    if broken:
        more = f" ({len(broken) - 1} more like it; genie-dg data verify lists them)" if len(broken) > 1 else ""
        raise DataError(broken[0] + more)
    return [now[file] for file in domain.paths]


def _examined_bytes(domain: BytesDomain, index: int, progress: Advance) -> PictureFacts:
    try:
        facts = _facts_of(domain.files[index], 0)
    except UNREADABLE as error:
        raise DataError(
            f"{domain.where(index)} cannot be decoded as a picture ({error}); remove it."
        ) from error
    progress(1)
    return facts


def _examined(
    domain: FileDomain, file: str, before: Mapping[str, PictureFacts], progress: Advance
) -> PictureFacts | DataError:
    """What is known of a file, read again if it has changed; or what is wrong with it."""
    path, facts = domain.root / file, before.get(file)
    try:
        status = path.stat()
        if facts is None or (facts.bytes, facts.modified) != (status.st_size, status.st_mtime_ns):
            facts = _facts_of(path.read_bytes(), status.st_mtime_ns)
    except UNREADABLE as error:
        return problem_with(path, error)
    progress(1)
    return facts


def _facts_of(content: bytes, modified: int) -> PictureFacts:
    with Image.open(BytesIO(content)) as picture:
        width, height = picture.size
    return PictureFacts(len(content), modified, _digest(content, 16), height, width)


def _remembered(path: Path) -> dict[str, PictureFacts]:
    """What an earlier call has stored; a broken file costs time, nothing else: all is examined again."""
    try:
        data = json.loads(read_whole(path, _MOST))
        if data["digest"] != _digest(json.dumps(data["files"]).encode(), 16):
            return {}
        return {file: PictureFacts(*row) for file, row in data["files"].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}


def _digest(content: bytes, size: int) -> str:
    return hashlib.blake2b(content, digest_size=size).hexdigest()


def _cannot_write(path: Path, error: OSError) -> FileError:
    """The sentence for a cache that cannot be written."""
    return FileError(
        f"{path} cannot be written ({error.strerror or error}); free some space or name another folder with "
        "--cache or GENIE_DG_CACHE."
    )
