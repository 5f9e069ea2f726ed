"""What is in each file: a digest of its bytes and the size of its picture, remembered until the file changes.

A cache must be keyed by content, and content must not be read twice. Digests are kept in the cache folder, one
file for each domain folder, with the size and modification time they were taken at; a file that has the same
size and time is not read again.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from .decode import problem_with, unreadable
from .domains import DataError, FileDomain

Progress = Callable[[int], object]
"""Called with the number of samples that were finished since the last call."""


class Known(NamedTuple):
    """What is known of one file."""

    bytes: int
    modified: int  # nanoseconds
    digest: str
    height: int
    width: int


def threads() -> int:
    """How many files are worked on at once: the cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def examine(domain: FileDomain, cache: Path, progress: Progress | None = None) -> list[Known]:
    """The digest and picture size of every file of a domain, in order.

    Files that cannot be read as a picture raise `DataError` with their names; what was learnt of the others is
    kept.
    """
    memo = _Memo(cache, domain)
    with ThreadPoolExecutor(threads()) as pool:
        outcomes = list(
            pool.map(lambda path: _examined(domain.root / path, memo.known.get(path), progress), domain.paths)
        )
    found = {path: o for path, o in zip(domain.paths, outcomes, strict=True) if isinstance(o, Known)}
    memo.store(found)
    broken = [str(o) for o in outcomes if isinstance(o, DataError)]
    if broken:
        more = f" ({len(broken) - 1} more like it; genie-dg data verify lists them)" if len(broken) > 1 else ""
        raise DataError(broken[0] + more)
    return [o for o in outcomes if isinstance(o, Known)]


def _examined(path: Path, known: Known | None, progress: Progress | None) -> Known | DataError:
    from PIL import Image

    try:
        status = path.stat()
        if known is None or (known.bytes, known.modified) != (status.st_size, status.st_mtime_ns):
            content = path.read_bytes()
            with Image.open(io.BytesIO(content)) as picture:
                width, height = picture.size
            digest = hashlib.blake2b(content, digest_size=16).hexdigest()
            known = Known(len(content), status.st_mtime_ns, digest, height, width)
    except Exception as error:
        if not unreadable(error):
            raise
        return problem_with(path, error)
    if progress is not None:
        progress(1)
    return known


class _Memo:
    """The digests of one domain folder, as a JSON file that is replaced as a whole."""

    def __init__(self, cache: Path, domain: FileDomain) -> None:
        place = hashlib.blake2b(str(domain.root.resolve()).encode(), digest_size=12).hexdigest()
        self.path = cache / "digests" / f"{place}.json"
        self.known: dict[str, Known] = {}
        if self.path.is_file():
            try:
                self.known = {path: Known(*row) for path, row in json.loads(self.path.read_text()).items()}
            except (ValueError, TypeError):
                self.known = {}  # a broken memo costs time, nothing else: every file is examined again

    def store(self, found: dict[str, Known]) -> None:
        if found != self.known:
            replace_file(self.path, json.dumps(found))


def replace_file(path: Path, text: str) -> None:
    """Write a small file so that it is either the old one or the new one, whatever happens."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.{os.getpid()}.part")
        with part.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise cannot_write(path, error) from error


def cannot_write(path: Path, error: OSError) -> DataError:
    """The sentence for a cache that cannot be written."""
    return DataError(
        f"{path} cannot be written ({error.strerror or error}); free some space or name another folder with "
        "--cache or GENIE_DG_CACHE. What was built before is kept."
    )
