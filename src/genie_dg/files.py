"""Files that are written whole or not at all, lines of JSON, and locks that end with their process.

A file is written under another name (``*.part``), synced and renamed, so a reader sees the old contents or the
new ones and a process that is killed loses nothing that was there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from .check import GenieError


class FileError(GenieError, RuntimeError):
    """A file or folder cannot be used; the message says which, why, and what to do."""


class Busy(FileError):
    """Another process holds the lock."""


def write_whole(path: Path, data: bytes) -> None:
    """Replace the contents of a file."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        raise FileError(
            f"{path} cannot be written ({error.strerror}); free some space or choose another folder, and start "
            "the same command again: nothing that was saved is lost."
        ) from error


def _sync_folder(folder: Path) -> None:
    """Make a rename last."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_parts(folder: Path) -> None:
    """Remove what a process that was killed while it wrote has left; the folder's lock must be held."""
    for part in folder.glob("*.part"):
        part.unlink()


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """A JSON object, sorted by key."""
    write_whole(path, (json.dumps(data, indent=1, sort_keys=True) + "\n").encode("utf-8"))


def json_line(data: Mapping[str, Any]) -> str:
    """One JSON object as one line, sorted by key.

    >>> json_line({"step": 1, "loss": 0.5})
    '{"loss": 0.5, "step": 1}\\n'
    """
    return json.dumps(data, sort_keys=True) + "\n"


def append_line(path: Path, data: Mapping[str, Any]) -> None:
    """Add one JSON object as the last line, synced; a torn line before it stays a line of its own."""
    try:
        with path.open("a+b") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - 1, 0))
            torn = file.read(1) not in (b"", b"\n")
            file.write(b"\n" * torn + json_line(data).encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise FileError(
            f"{path} cannot be written ({error.strerror}); free some space and start the same command again: "
            "the run goes on from its last checkpoint."
        ) from error


def read_lines(path: str | Path, most: int | None = None) -> tuple[list[dict[str, Any]], list[str]]:
    """The JSON objects in the first ``most`` lines of a file, or in all, and a sentence for each line without.

    A file that is not there has no lines. The last line of a process that was killed may be torn.
    """
    try:
        text = Path(path).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return [], []
    except OSError as error:
        return [], [f"{path} cannot be read ({error.strerror}); it counts as missing."]
    objects, problems = [], []
    for number, line in enumerate(text.split(b"\n")[:most], 1):
        if not line.strip():
            continue
        try:
            data = json.loads(line.decode("utf-8"))
            if not isinstance(data, dict):
                raise ValueError("not an object")
            objects.append(data)
        except (ValueError, RecursionError) as error:
            reason = str(error).rstrip(".") or type(error).__name__
            problems.append(f"Line {number} of {path} is not a JSON object ({reason}); it is left out.")
    return objects, problems


@contextmanager
def lock(path: Path, work: str, wait: float = 0.0) -> Iterator[None]:
    """Hold a lock file, whose folder is made when missing.

    The lock ends with the process that holds it, in whatever way. The file stays: removing it would let two
    processes hold two files of one name.

    Args:
        path: the lock file.
        work: what the lock is about, for the refusal: ``"trains runs/ab12"``.
        wait: seconds to wait for it; below 0 without end.
    """
    from filelock import FileLock, Timeout

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        guard = FileLock(path, timeout=wait)
        guard.acquire()
    except Timeout as error:
        raise Busy(f"Another process {work} right now; wait until it ends.") from error
    except OSError as error:
        raise FileError(
            f"{path.parent} cannot be written ({error.strerror}); choose another folder."
        ) from error
    try:
        yield
    finally:
        guard.release()


def is_locked(path: Path) -> bool:
    """Whether a process holds a lock file."""
    if not path.exists():
        return False
    try:
        with lock(path, "works here"):
            return False
    except Busy:
        return True
