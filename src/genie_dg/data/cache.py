"""Decode once: pictures as raw uint8 pixels in one memory-mapped file for each domain.

Two kinds. ``EvalSpec(size)`` stores what evaluation sees, the picture resized to a square, so evaluation from
the cache is equal to decoding, to the bit. ``TrainSpec(limit)`` stores the decoded picture itself where its
shorter side is at most ``limit`` (exact) and a smaller version otherwise (an approximation of cropping the
original).

A cache is named after the contents of the files and the specification, and it is never changed once complete:
every picture is compared with its checksum the first time that it is read. While it is built, blocks of rows
are written, synced and then entered in a journal with their checksum; after a crash only blocks whose checksum
still fits are kept. One process builds at a time; others wait for the result.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from PIL import __version__ as pillow_version

from genie_dg.files import append_line, lock, read_lines, read_whole, write_json
from genie_dg.runtime import cores

from .digests import Known, cannot_write, examine
from .domains import DataError, PictureDomain
from .progress import Advance, silent

MOST = 2**30
"""Bytes of what describes a cache."""
BLOCK = 32
"""Rows that are written, synced and entered together."""
Pixels = np.ndarray[Any, np.dtype[np.uint8]]


@dataclass(frozen=True)
class EvalSpec:
    """``size`` by ``size`` pixels, planes of red, green and blue."""

    size: int = 224

    def shape(self, known: Known) -> tuple[int, int, int]:
        return 3, self.size, self.size

    def pixels(self, picture: Image.Image) -> Pixels:
        small = picture.resize((self.size, self.size), Image.Resampling.BILINEAR)
        return np.ascontiguousarray(np.asarray(small).transpose(2, 0, 1))


@dataclass(frozen=True)
class TrainSpec:
    """The picture as decoded; shrunk so that its shorter side is ``limit`` when it is longer than that."""

    limit: int = 288

    def shape(self, known: Known) -> tuple[int, int, int]:
        short = min(known.height, known.width)
        if short <= self.limit:
            return known.height, known.width, 3
        return round(known.height * self.limit / short), round(known.width * self.limit / short), 3

    def pixels(self, picture: Image.Image) -> Pixels:
        height, width, _ = self.shape(Known(0, 0, "", picture.height, picture.width))
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
    checksums: Sequence[int] = ()  # of each row; caches from before have those of blocks only
    checked: bytearray = field(default_factory=bytearray)  # the rows that were compared with theirs

    def __len__(self) -> int:
        return len(self.shapes)

    def row(self, index: int) -> Pixels:
        start = int(self.offsets[index])
        pixels = self.data[start : int(self.offsets[index + 1])]
        if self.checked and not self.checked[index]:
            if zlib.crc32(pixels.data) != self.checksums[index]:
                raise DataError(
                    f"{self.path} is damaged (picture {index} was changed after it was written); remove it, "
                    "and it is built again."
                )
            self.checked[index] = 1
        return pixels.reshape(self.shapes[index])


def cache_folder(given: str | Path | None = None) -> Path:
    """Where caches live: as given, else $GENIE_DG_CACHE, else genie-dg in the user's cache folder."""
    if given is not None or os.environ.get("GENIE_DG_CACHE"):
        return Path(given if given is not None else os.environ["GENIE_DG_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "genie-dg"


def estimate(known: Sequence[Known], spec: Spec) -> int:
    """Bytes that a cache takes."""
    return int(_offsets(known, spec)[-1])


def open_cache(
    domain: PictureDomain, spec: Spec, folder: str | Path | None = None, progress: Advance = silent
) -> Cache:
    """The cache of a domain in a folder of caches (see `cache_folder`); what is missing is built first."""
    root = cache_folder(folder)
    known = examine(domain, root)
    name = "".join(c if c.isalnum() else "_" for c in domain.name)[:40]
    place = root / f"{name}-{_key(known, spec)}"
    if not (place / "complete.json").is_file():
        with lock(place / "lock", f"builds {place}", wait=-1):
            if not (place / "complete.json").is_file():
                _build(domain, known, spec, place, progress)
    return _opened(place, known, spec)


def _key(known: Sequence[Known], spec: Spec) -> str:
    facts = {"spec": type(spec).__name__, **asdict(spec), "pillow": pillow_version}
    text = json.dumps(facts, sort_keys=True) + "".join(k.digest for k in known)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def _build(domain: PictureDomain, known: Sequence[Known], spec: Spec, place: Path, progress: Advance) -> None:
    offsets = _offsets(known, spec)
    blocks = range(0, len(known), BLOCK)
    part = place / "pixels.part"
    try:
        part.touch()
        with part.open("r+b") as file:
            descriptor = file.fileno()
            if offsets[-1]:
                os.posix_fallocate(descriptor, 0, int(offsets[-1]))  # a full disk is met before the work
            done = _kept(place / "journal.jsonl", descriptor, offsets)
            progress(sum(min(BLOCK, len(known) - b) for b in done))
            with ThreadPoolExecutor(cores()) as pool:
                for start in blocks:
                    if start not in done:
                        done[start] = _write_block(domain, known, spec, offsets, start, descriptor, pool)
                        append_line(place / "journal.jsonl", {"start": start, "crc": done[start][0]})
                        progress(min(BLOCK, len(known) - start))
            os.ftruncate(descriptor, int(offsets[-1]))
            os.fsync(descriptor)
        part.replace(place / "pixels.u8")
    except OSError as error:
        raise cannot_write(place, error) from error
    sizes = {"count": len(known), "bytes": int(offsets[-1]), "spec": repr(spec)}
    rows = [crc for b in blocks for crc in done[b][1]]
    write_json(place / "complete.json", {**sizes, "blocks": [done[b][0] for b in blocks], "rows": rows})
    (place / "journal.jsonl").unlink(missing_ok=True)


def _write_block(
    domain: PictureDomain,
    known: Sequence[Known],
    spec: Spec,
    offsets: Any,
    start: int,
    descriptor: int,
    pool: Any,
) -> tuple[int, list[int]]:
    """Write a block of rows; its checksum, and those of the rows."""
    rows = range(start, min(start + BLOCK, len(known)))
    pixels = list(pool.map(lambda i: spec.pixels(domain.read(i)), rows))
    for i, row in zip(rows, pixels, strict=True):
        if row.shape != spec.shape(known[i]):
            raise DataError(f"{domain.where(i)} changed while it was cached; run the same command again.")
    content = b"".join(row.tobytes() for row in pixels)
    written = 0
    while written < len(content):
        written += os.pwrite(descriptor, content[written:], int(offsets[start]) + written)
    os.fdatasync(descriptor)
    return zlib.crc32(content), [zlib.crc32(row) for row in pixels]


def _kept(journal: Path, descriptor: int, offsets: Any) -> dict[int, tuple[int, list[int]]]:
    """The blocks of an interrupted build that are truly there, with their checksum and those of their rows."""
    kept: dict[int, tuple[int, list[int]]] = {}
    for line in read_lines(journal)[0]:  # the last line may be torn, and is then left out
        start, crc = line.get("start"), line.get("crc")
        if not isinstance(start, int) or start not in range(0, len(offsets) - 1, BLOCK):
            continue
        ends = [int(x - offsets[start]) for x in offsets[start : min(start + BLOCK, len(offsets) - 1) + 1]]
        content = os.pread(descriptor, ends[-1], int(offsets[start]))
        if zlib.crc32(content) == crc:
            rows = [zlib.crc32(content[a:b]) for a, b in pairwise(ends)]
            kept[start] = zlib.crc32(content), rows
    return kept


def _offsets(known: Sequence[Known], spec: Spec) -> np.ndarray[Any, Any]:
    """Where each row begins in the file, and where the last one ends."""
    return np.cumsum([0, *(math.prod(spec.shape(k)) for k in known)], dtype=np.int64)


def _opened(place: Path, known: Sequence[Known], spec: Spec) -> Cache:
    facts, offsets = _facts(place), _offsets(known, spec)
    path = place / "pixels.u8"
    size = path.stat().st_size if path.is_file() else -1
    rows = facts.get("rows", [])
    agree = facts.get("count") == len(known) and facts.get("bytes") == int(offsets[-1]) == size
    if not agree or not isinstance(rows, list) or len(rows) not in (0, len(known)):
        raise DataError(f"{place} is damaged (its sizes do not agree); remove it, and it is built again.")
    # Copy-on-write: torch asks for writable memory, and whatever is written stays out of the file.
    data = np.memmap(path, dtype=np.uint8, mode="c") if size else np.empty(0, dtype=np.uint8)
    shapes = np.array([spec.shape(k) for k in known], dtype=np.int64)
    originals = np.array([(k.height, k.width) for k in known])
    return Cache(place, shapes, offsets, originals, data, rows, bytearray(len(rows)))


def _facts(place: Path) -> dict[str, Any]:
    """What ``complete.json`` says."""
    try:
        facts = json.loads(read_whole(place / "complete.json", MOST))
        if not isinstance(facts, dict):
            raise ValueError("it is not an object")
    except (OSError, ValueError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise DataError(
            f"{place} is damaged (complete.json cannot be read: {why}); remove it, and it is built again."
        ) from error
    return facts


def damaged_blocks(cache: Cache) -> list[int]:
    """First rows of the blocks whose pixels no longer have the checksum they were written with."""
    blocks = _facts(cache.path).get("blocks")
    starts = range(0, len(cache), BLOCK)
    spans = [cache.offsets[[s, min(s + BLOCK, len(cache))]] for s in starts]
    found = [zlib.crc32(cache.data[begin:end].tobytes()) for begin, end in spans]
    if not isinstance(blocks, list) or len(blocks) != len(found):
        return list(starts)
    return [s for s, crc, written in zip(starts, found, blocks, strict=True) if crc != written]
