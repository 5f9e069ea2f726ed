"""What is in each file: a digest of its bytes and the size of its picture, remembered until the file changes.

A cache is keyed by content, and content must not be read twice. Digests are kept in the cache folder, one file
for each domain folder; a picture that still has the size and modification time it had then is not read again.
"""

from __future__ import annotations

import hashlib
import io
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from genie_dg.files import FileError, read_whole, write_whole
from genie_dg.runtime import cores

from .decode import UNREADABLE, problem_with
from .domains import BytesDomain, DataError, FileDomain, PictureDomain
from .progress import Advance, silent

MOST = 2**31
"""Bytes of a file of digests."""


class Known(NamedTuple):
    """What is known of one file."""

    bytes: int
    modified: int  # nanoseconds
    digest: str
    height: int
    width: int


def examine(domain: PictureDomain, cache: Path, progress: Advance = silent) -> list[Known]:
    """The digest and picture size of every file of a domain, in order.

    Files that cannot be read as a picture raise `DataError`; what was learnt of the others is kept. Pictures in
    memory are examined each time.
    """
    if isinstance(domain, BytesDomain):
        return [_examined_bytes(domain, index, progress) for index in range(len(domain))]
    return _examined_files(domain, cache, progress)


def _examined_bytes(domain: BytesDomain, index: int, progress: Advance) -> Known:
    content = domain.files[index]
    try:
        with Image.open(io.BytesIO(content)) as picture:
            width, height = picture.size
    except UNREADABLE as error:
        raise DataError(
            f"{domain.where(index)} cannot be decoded as a picture ({error}); remove it."
        ) from error
    progress(1)
    return Known(len(content), 0, hashlib.blake2b(content, digest_size=16).hexdigest(), height, width)


def _examined_files(domain: FileDomain, cache: Path, progress: Advance) -> list[Known]:
    place = hashlib.blake2b(str(domain.root.resolve()).encode(), digest_size=12).hexdigest()
    path = cache / "digests" / f"{place}.json"
    before = _remembered(path)
    with ThreadPoolExecutor(cores()) as pool:
        work = pool.map(lambda file: _examined(domain.root / file, before.get(file), progress), domain.paths)
        outcomes = dict(zip(domain.paths, work, strict=True))
    now = {file: outcome for file, outcome in outcomes.items() if isinstance(outcome, Known)}
    if now != before:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(path, error) from error
        write_whole(path, json.dumps({"digest": _digest(now), "files": now}).encode("utf-8"))
    broken = [str(outcome) for outcome in outcomes.values() if isinstance(outcome, DataError)]
    if broken:
        more = f" ({len(broken) - 1} more like it; genie-dg data verify lists them)" if len(broken) > 1 else ""
        raise DataError(broken[0] + more)
    return [now[file] for file in domain.paths]


def _examined(path: Path, known: Known | None, progress: Advance) -> Known | DataError:
    try:
        status = path.stat()
        if known is None or (known.bytes, known.modified) != (status.st_size, status.st_mtime_ns):
            content = path.read_bytes()
            with Image.open(io.BytesIO(content)) as picture:
                width, height = picture.size
            digest = hashlib.blake2b(content, digest_size=16).hexdigest()
            known = Known(len(content), status.st_mtime_ns, digest, height, width)
    except UNREADABLE as error:
        return problem_with(path, error)
    progress(1)
    return known


def _remembered(path: Path) -> dict[str, Known]:
    """What an earlier call has stored; a broken file costs time, nothing else: all is examined again."""
    try:
        data = json.loads(read_whole(path, MOST))
        if isinstance(data.get("digest"), str):
            data = data["files"] if data["digest"] == _digest(data["files"]) else {}
        return {file: Known(*row) for file, row in data.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}


def _digest(files: object) -> str:
    return hashlib.blake2b(json.dumps(files).encode("utf-8"), digest_size=16).hexdigest()


def cannot_write(path: Path, error: OSError) -> FileError:
    """The sentence for a cache that cannot be written."""
    return FileError(
        f"{path} cannot be written ({error.strerror or error}); free some space or name another folder with "
        "--cache or GENIE_DG_CACHE. What was built before is kept."
    )
