"""Files that are written whole or not at all, lines of JSON, and locks that end with their process.

A file is written under another name (``*.part``), synced and renamed, so a reader sees the old contents or the
new ones and a process that is killed loses nothing that was there. Only regular files of a sane size are read:
a pipe would wait for ever, and a device has no end.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from .check import GenieError

_BEAT = 20.0
"""Seconds between two signs of life of a process in `beating`."""
_MOST_BYTES = 2**26
"""Of one file of text: a larger one is not a file of ours."""
_AND_THEN = "free some space and start the same command again: nothing that was saved is lost"


class FileError(GenieError, RuntimeError):
    """A file or folder cannot be used; the message says which, why, and what to do."""


class Busy(FileError):
    """Another process holds the lock."""


class FileWarning(UserWarning):
    """A file was damaged and could be done without; the message says which, and what happens instead."""


def _open_regular(path: str | os.PathLike[str], most: int = _MOST_BYTES, flags: int = os.O_RDONLY) -> int:
    """The descriptor of a regular file of at most so many bytes; anything else is an `OSError` that says what.

    Nothing is waited for: pipes, devices and folders are refused before they are read.
    """
    handle = os.open(path, flags | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0), 0o666)
    try:
        status = os.fstat(handle)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is a pipe or a device, not a file")
        if status.st_size > most:
            raise OSError(errno.EFBIG, f"it has more than {most >> 20} MB")
    except BaseException:
        os.close(handle)
        raise
    return handle


def read_whole(path: str | os.PathLike[str], most: int = _MOST_BYTES) -> bytes:
    """The contents of a regular file; anything else is an `OSError`, as from `read_stream`."""
    with read_stream(path, most) as file:
        return file.read()


def read_stream(path: str | os.PathLike[str], most: int) -> BinaryIO:
    """A regular file, opened to be read piece by piece."""
    return os.fdopen(_open_regular(path, most), "rb")


def write_whole(path: Path, data: bytes | Sequence[bytes | memoryview], before: Path | None = None) -> None:
    """Replace the contents of a file.

    Args:
        path: the file.
        data: what it holds then, in one piece or in several.
        before: where the contents it had are kept; without it they are gone.
    """
    check_locks(path.parent)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.writelines([data] if isinstance(data, bytes) else data)
            file.flush()
            os.fsync(file.fileno())
        check_locks(path.parent)
        if before is not None and path.is_file():
            path.replace(before)
        part.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        raise _not_writable(path, error, _AND_THEN) from error
    finally:
        with suppress(OSError):
            os.unlink(part)  # what a failure has left


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
    check_locks(path.parent)
    try:
        with os.fdopen(_open_regular(path, flags=os.O_RDWR | os.O_APPEND | os.O_CREAT), "a+b") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - 1, 0))
            torn = file.read(1) not in (b"", b"\n")
            file.write(b"\n" * torn + json_line(data).encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise _not_writable(path, error, _AND_THEN) from error


def read_lines(path: str | Path, most: int | None = None) -> tuple[list[dict[str, Any]], list[str]]:
    """The JSON objects in the first ``most`` lines of a file, or in all, and a sentence for each line without.

    A file that is not there has no lines. The last line of a process that was killed may be torn.
    """
    try:
        text = read_whole(path)
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


@dataclass(frozen=True)
class Holder:
    """The process that holds a lock, as it wrote down beside the lock file.

    Args:
        host: its machine.
        pid: its number there.
        born: when the process was started, in the machine's own count; a later process may have its number.
        since: when it took the lock, as text.
    """

    host: str
    pid: int
    born: str
    since: str

    @property
    def here(self) -> bool:
        """Whether it is on this machine; of others nobody here knows whether they are alive."""
        return self.host == socket.gethostname()

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"


def _born(pid: int) -> str | None:
    """When a process of this machine was started, where the system says so; ``None`` when it is not there."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        pass
    except (ProcessLookupError, OverflowError):
        return None
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()
    except OSError:
        return ""
    return None if state == "Z" else fields[18]


def holder_file(path: Path) -> Path:
    """Where the holder of a lock file is written down."""
    return path.with_name(f"{path.name}.holder")


def held_by(path: Path) -> Holder | None:
    """Who holds a lock file; ``None`` when nobody does, or nobody that can be alive. The lock is not touched.

    What a process on another machine wrote down is believed: see `Holder.here`.
    """
    try:
        data = json.loads(holder_file(path).read_bytes())
        holder = Holder(str(data["host"]), int(data["pid"]), str(data["born"]), str(data["since"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return None if holder.here and _born(holder.pid) != holder.born else holder


def silence(path: Path) -> float:
    """Seconds since the holder of a lock file took it, or last gave a sign of life in `beating`."""
    try:
        return time.time() - holder_file(path).stat().st_mtime
    except OSError:
        return float("inf")


@contextmanager
def beating(path: Path, every: float = _BEAT) -> Iterator[None]:
    """Give a sign of life again and again, for `silence` on other machines, while this process holds the lock.

    Args:
        path: the lock file, which may be taken and released inside.
        every: seconds between two signs.
    """
    over = threading.Event()

    def beat() -> None:
        while not over.wait(every):
            if path in _held:
                with suppress(OSError):
                    os.utime(holder_file(path))

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


_held: dict[Path, tuple[int, int] | None] = {}
"""The lock files that this process holds, and which file each was when it was taken."""


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def check_locks(folder: Path) -> None:
    """Refuse to write into a folder whose lock file this process held and somebody removed or replaced."""
    for path, identity in _held.items():
        if path.parent == folder and _identity(path) != identity:
            raise FileError(
                f"{folder} was removed while this process worked there; it stops here, and the same command "
                "starts again."
            )


@contextmanager
def lock(path: Path, work: str, wait: float = 0.0) -> Iterator[None]:
    """Hold a lock file, whose folder is made when missing.

    The lock ends with the process that holds it, in whatever way. The file stays: removing it would let two
    processes hold two files of one name. Who holds it stands in a file beside it, for `held_by`. When the lock
    file goes although it is held, its folder is not written to any more: see `check_locks`.

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
        holder = held_by(path)
        who = f" ({holder})" if holder else ""
        raise Busy(f"Another process{who} {work} right now; wait until it ends.") from error
    except OSError as error:
        raise _not_writable(path.parent, error) from error
    try:
        _write_holder(path)
        yield
    finally:
        if _held.pop(path, None) == _identity(path):
            with suppress(OSError):
                os.unlink(holder_file(path))
        guard.release()


def _write_holder(path: Path) -> None:
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    holder = Holder(socket.gethostname(), os.getpid(), _born(os.getpid()) or "", since)
    try:
        holder_file(path).write_text(json.dumps(asdict(holder)), encoding="utf-8")
    except OSError as error:
        raise _not_writable(path.parent, error) from error
    _held[path] = _identity(path)


def _not_writable(path: Path, error: OSError, what_to_do: str = "choose another folder") -> FileError:
    return FileError(f"{path} cannot be written ({error.strerror}); {what_to_do}.")
