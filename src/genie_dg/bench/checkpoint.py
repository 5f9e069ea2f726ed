"""A run on disk: written whole or not at all, and read without trusting it.

A run's folder holds ``config.json`` (what the run is), ``meta.json`` (versions and names), ``records.jsonl``
(one line for each evaluation), ``checkpoint.pt`` (all that is needed to go on), ``timings.jsonl`` (how long
things took, which is never the same twice and so no part of the records), at the end ``model.pt`` (the
weights) and ``done``. A file is written beside its name, synced and renamed. Records beyond those that the
checkpoint counts are cut off when a run goes on, so a run that was killed at any moment leaves the same
records as one that was not.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

CHECKPOINT, RECORDS, TIMINGS, CONFIG, META, MODEL, DONE, FAILURES, LOCK = (
    "checkpoint.pt",
    "records.jsonl",
    "timings.jsonl",
    "config.json",
    "meta.json",
    "model.pt",
    "done",
    "failures.jsonl",
    "lock",
)


class Busy(RuntimeError):
    """Another process holds the run."""


class RunError(RuntimeError):
    """A run's folder cannot be used; the message says which file, why, and what to do."""


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold a run's folder, which is made when missing; a second process is refused.

    The lock dies with the process that holds it. The lock file stays: removing it would let two processes hold
    two files of one name.
    """
    import fcntl

    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK).open("ab")
    except OSError as error:
        raise RunError(f"{folder} cannot be written ({error.strerror}); choose another folder.") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Busy(f"Another process trains {folder} right now; wait until it ends.") from error
        yield


def write_whole(path: Path, data: bytes) -> None:
    """Replace a file by new contents, so that a reader sees the old or the new and nothing between."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise RunError(
            f"{path} cannot be written ({error.strerror}); make room or choose another folder, and start the "
            "same command again: nothing that was saved is lost."
        ) from error


def sync_folder(folder: Path) -> None:
    """Make a rename last."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    write_whole(path, (json.dumps(data, indent=1, sort_keys=True) + "\n").encode("utf-8"))


def save_tensors(path: Path, state: Mapping[str, Any]) -> None:
    """Tensors, numbers and text in torch's format, written whole."""
    import io

    import torch

    buffer = io.BytesIO()
    torch.save(dict(state), buffer)
    write_whole(path, buffer.getvalue())


def load_tensors(path: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """What `save_tensors` wrote; code in the file is never run."""
    import torch

    try:
        state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
    except Exception as error:
        raise RunError(
            f"{path} cannot be read ({type(error).__name__}); remove it and start the same command again: the "
            "run then starts from its first step."
        ) from error
    return state


def append_line(path: Path, data: Mapping[str, Any]) -> None:
    """One JSON object as one line at the end, synced."""
    try:
        with path.open("ab") as file:
            file.write((json.dumps(data, sort_keys=True) + "\n").encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise RunError(
            f"{path} cannot be written ({error.strerror}); make room and start the same command again: the run "
            "goes on from its last checkpoint."
        ) from error


def read_records(path: Path, count: int) -> list[dict[str, Any]]:
    """The first ``count`` records."""
    if count == 0:
        return []
    lines = path.read_bytes().split(b"\n")[:count] if path.exists() else []
    try:
        records = [json.loads(line) for line in lines]
    except ValueError as error:
        raise RunError(f"{path} has a line that is no JSON; remove its folder and run it again.") from error
    if len(records) < count:
        raise RunError(f"{path} has {len(records)} records of {count}; remove its folder and run it again.")
    return records


def cut_records(path: Path, records: list[dict[str, Any]]) -> None:
    """Leave these records only."""
    text = "".join(json.dumps(record, sort_keys=True) + "\n" for record in records)
    if not path.exists() or path.read_bytes() != text.encode("utf-8"):
        write_whole(path, text.encode("utf-8"))
