"""One process at a time: a lock that a killed process cannot leave behind."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from .domains import DataError

_NO_LOCKS_HERE = (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK)


def _lock(file: IO[bytes]) -> None:
    """Take the lock at once or raise OSError; the system frees it when the file is closed in whatever way."""
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _is_still(file: IO[bytes], path: Path) -> bool:
    """Is the locked file the one that the path names? Its last holder may have removed it meanwhile."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Hold the lock file ``path`` while the block runs.

    Raises:
        DataError: another process holds it, or its folder cannot be written.
    """
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("ab")
        except OSError as error:
            raise DataError(
                f"{path.parent} cannot be written ({error.strerror}); choose another folder."
            ) from error
        with file:
            try:
                _lock(file)
            except OSError as error:
                # A file system without locks (some cluster disks) cannot tell; there the user keeps runs apart.
                if error.errno not in _NO_LOCKS_HERE:
                    raise DataError(
                        f"Another process works on {path}; wait until it ends, then try again."
                    ) from error
            if not _is_still(file, path):
                continue
            try:
                yield
            finally:
                if (
                    sys.platform != "win32"
                ):  # there an open file cannot be removed, and an empty one does no harm
                    path.unlink(missing_ok=True)
            return
