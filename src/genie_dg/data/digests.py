"""What is in each file: a digest of its bytes and the size of its picture, remembered until the file changes.

A cache must be keyed by content, and content must not be read twice. Digests are kept in the cache folder, one
file for each domain folder, with the size and modification time they were taken at; a file that has the same
size and time is not read again.
"""

from __future__ import annotations

import hashlib
import io
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from genie_dg.files import FileError, write_whole

from .decode import problem_with, unreadable
from .domains import DataError, FileDomain
from .threads import Advance, thread_count


class Known(NamedTuple):
    """What is known of one file."""

    bytes: int
    modified: int  # nanoseconds
    digest: str
    height: int
    width: int


def examine(domain: FileDomain, cache: Path, progress: Advance | None = None) -> list[Known]:
    """The digest and picture size of every file of a domain, in order.

    Files that cannot be read as a picture raise `DataError` with their names; what was learnt of the others is
    kept.
    """
    place = hashlib.blake2b(str(domain.root.resolve()).encode(), digest_size=12).hexdigest()
    path = cache / "digests" / f"{place}.json"
    before = _remembered(path)
    with ThreadPoolExecutor(thread_count()) as pool:
        work = pool.map(lambda file: _examined(domain.root / file, before.get(file), progress), domain.paths)
        outcomes = dict(zip(domain.paths, work, strict=True))
    now = {file: outcome for file, outcome in outcomes.items() if isinstance(outcome, Known)}
    if now != before:
        _remember(path, now)
    broken = [str(outcome) for outcome in outcomes.values() if isinstance(outcome, DataError)]
    if broken:
        more = f" ({len(broken) - 1} more like it; genie-dg data verify lists them)" if len(broken) > 1 else ""
        raise DataError(broken[0] + more)
    return [now[file] for file in domain.paths]


def _examined(path: Path, known: Known | None, progress: Advance | None) -> Known | DataError:
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


def _remembered(path: Path) -> dict[str, Known]:
    """What an earlier call has stored; a broken file costs time, nothing else: all is examined again."""
    try:
        return {file: Known(*row) for file, row in json.loads(path.read_text(encoding="utf-8")).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _remember(path: Path, known: dict[str, Known]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(path, error) from error
    write_whole(path, json.dumps(known).encode("utf-8"))


def cannot_write(path: Path, error: OSError) -> FileError:
    """The sentence for a cache that cannot be written."""
    return FileError(
        f"{path} cannot be written ({error.strerror or error}); free some space or name another folder with "
        "--cache or GENIE_DG_CACHE. What was built before is kept."
    )
