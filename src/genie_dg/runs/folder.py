"""The folder of a run: which file is called what, and how it is begun and its records are kept.

A run's folder holds ``config.json`` (what the run is), ``meta.json`` (versions and names), ``records.jsonl``
(one line for each evaluation), ``checkpoint.pt`` and ``checkpoint-before.pt`` (all that is needed to go on, of
the last record and of the one before), ``timings.jsonl`` (how long things took, which is never the same twice
and so not part of the records), ``watch.jsonl`` (what it was watched for), ``outcomes.jsonl`` (how attempts
ended), ``launch.json`` (the command that trained it), ``model.pt`` and ``model-<step>.pt`` (weights of
records), with SWAD ``swad.json`` and ``swad.pt`` (record and weights of the average), ``continue.pt`` and
``continue-model.pt`` (from which a longer run can go on; see `genie_dg.bench.checkpoint`), and at the end
``done`` (digests of all this). Records beyond those that the checkpoint counts are cut off when a run goes on,
so a run that was killed at any moment leaves the same records as one that was not.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from genie_dg.check import InputError
from genie_dg.files import (
    FileError,
    append_line,
    json_line,
    lock,
    read_lines,
    read_whole,
    remove_parts,
    write_json,
    write_whole,
)

from .config import RunConfig, canonical
from .record import Record, record_from

CONFIG, META, DONE, LOCK = "config.json", "meta.json", "done", "lock"
RECORDS, TIMINGS, WATCH = "records.jsonl", "timings.jsonl", "watch.jsonl"
CHECKPOINT, BEFORE, MODEL = "checkpoint.pt", "checkpoint-before.pt", "model.pt"
AVERAGE, AVERAGE_MODEL = "swad.json", "swad.pt"
LAUNCH = "launch.json"
CONTINUE, CONTINUE_MODEL = "continue.pt", "continue-model.pt"

_OF_RECORD = re.compile(r"model-\d+\.pt")


def model_of(step: int) -> str:
    """The name of the weights of one record, by its step.

    >>> model_of(300)
    'model-300.pt'
    """
    return f"model-{step}.pt"


def is_model(name: str) -> bool:
    """Whether a file of this name holds weights of a record.

    >>> is_model("model.pt"), is_model("model-300.pt"), is_model("swad.pt")
    (True, True, False)
    """
    return name == MODEL or _OF_RECORD.fullmatch(name) is not None


def is_sealed(name: str) -> bool:
    """Whether a complete run keeps this file as it is: all but lock, checkpoints, outcomes and ``done``."""
    return is_model(name) or name in (CONFIG, META, RECORDS, TIMINGS, WATCH, AVERAGE, AVERAGE_MODEL)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold a run's folder, which is made when missing; a second process is refused."""
    with lock(folder / LOCK, f"trains {folder}"):
        yield


def begin(folder: Path, config: RunConfig, meta: Mapping[str, Any]) -> None:
    """Write what the run is; a folder of another run is refused."""
    remove_parts(folder)
    path, text = folder / CONFIG, (canonical(config) + "\n").encode("utf-8")
    try:
        known = read_whole(path)
    except FileNotFoundError:
        write_whole(path, text)
    except OSError as error:
        raise FileError(f"{path} cannot be read ({error.strerror}); remove {folder} first.") from error
    else:
        if known.strip() != text.strip():
            raise FileError(f"{folder} holds another run; choose another folder, or remove it.")
    if not is_done(folder) and _domains(folder) != meta.get("domains"):
        write_json(folder / META, meta)


def _domains(folder: Path) -> Any:
    """What ``meta.json`` says; ``None`` where it cannot be read."""
    try:
        data = msgspec.json.decode(read_whole(folder / META))  # as it is read later
        return data.get("domains") if isinstance(data, dict) else None
    except (OSError, ValueError, RecursionError):
        return None


def is_done(folder: Path) -> bool:
    """Whether a run is marked as complete."""
    return (folder / DONE).is_file()


def has_checkpoint(folder: Path) -> bool:
    """Whether a run can go on from where it was."""
    return (folder / CHECKPOINT).exists() or (folder / BEFORE).exists()


def remove_checkpoints(folder: Path) -> None:
    """Of a run that is complete."""
    for name in (CHECKPOINT, BEFORE):
        (folder / name).unlink(missing_ok=True)


class RecordLog:
    """The records of a run that is under way: a file that grows, and the digest of all its lines.

    Args:
        folder: of the run.
        records: what the file holds from now on.
    """

    def __init__(self, folder: Path, records: Sequence[Record]) -> None:
        cut_records(folder, records)
        self.path, self.count = folder / RECORDS, len(records)
        self._digest = hashlib.sha256(_text(records))

    @property
    def digest(self) -> str:
        """Of the file, as hexadecimal digits."""
        return self._digest.hexdigest()

    def append(self, record: Record) -> None:
        """Add a record."""
        append_line(self.path, record.to_json())
        self.count += 1
        self._digest.update(_text([record]))


def _text(records: Sequence[Record]) -> bytes:
    return "".join(json_line(record.to_json()) for record in records).encode("utf-8")


def read_records(folder: Path, domains: int, count: int | None = None, digest: str = "") -> list[Record]:
    """The first ``count`` records of a run, or all; what cannot be read, or has another digest, is refused."""
    if count == 0:
        return []
    lines, problems = read_lines(folder / RECORDS, count)
    why, records = "", []
    if problems or (count is not None and len(lines) < count):
        why = f"has {len(lines)} records of {count or len(lines) + len(problems)}"
    else:
        try:
            records = [record_from(line, domains) for line in lines]
        except InputError as error:
            why = f"has a line that is not a record ({str(error).rstrip('.')})"
    if not why and digest and hashlib.sha256(_text(records)).hexdigest() != digest:
        why = "was changed after it was written"
    if why:
        raise FileError(f"{folder / RECORDS} {why}; remove its folder and run it again.")
    return records


def cut_records(folder: Path, records: Sequence[Record]) -> None:
    """Leave these records only."""
    path, text = folder / RECORDS, _text(records)
    try:
        same = read_whole(path) == text
    except OSError:  # missing, or no file: it is replaced
        same = False
    if not same:
        write_whole(path, text)


def note_launch(folder: Path, words: Sequence[str]) -> None:
    """Write the words of the command that starts a run, the program's name first; the folder is made."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / LAUNCH, {"command": list(words)})
