"""The folder of a run: which file is called what, and how tensors are kept in it.

A run's folder holds ``config.json`` (what the run is), ``meta.json`` (versions and names), ``records.jsonl``
(one line for each evaluation), ``checkpoint.pt`` (all that is needed to go on), ``timings.jsonl`` (how long
things took, which is never the same twice and so not part of the records), ``watch.jsonl`` (what it was watched
for), ``failures.jsonl`` (why attempts ended), at the end ``model.pt`` (the weights), with SWAD ``swad.json``
and ``swad.pt`` (record and weights of the average), and ``done``. Records beyond those that the checkpoint
counts are cut off when a run goes on, so a run that was killed at any moment leaves the same records as one
that was not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genie_dg.check import InputError
from genie_dg.files import FileError, json_line, lock, read_lines, remove_parts, write_json, write_whole

from .record import Record, RunConfig, canonical, record_from

if TYPE_CHECKING:
    import torch

CONFIG, META, DONE, LOCK = "config.json", "meta.json", "done", "lock"
RECORDS, TIMINGS, WATCH, FAILURES = "records.jsonl", "timings.jsonl", "watch.jsonl", "failures.jsonl"
CHECKPOINT, MODEL, AVERAGE, AVERAGE_MODEL = "checkpoint.pt", "model.pt", "swad.json", "swad.pt"


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold a run's folder, which is made when missing; a second process is refused."""
    with lock(folder / LOCK, f"trains {folder}"):
        yield


def begin(folder: Path, config: RunConfig, meta: Mapping[str, Any]) -> None:
    """Write what the run is; a folder of another run is refused."""
    remove_parts(folder)
    path, text = folder / CONFIG, canonical(config)
    if path.exists() and path.read_text(encoding="utf-8").strip() != text:
        raise FileError(f"{folder} holds another run; choose another folder, or remove it.")
    if not path.exists():
        write_whole(path, (text + "\n").encode("utf-8"))
    if not (folder / META).exists():
        write_json(folder / META, meta)


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
        raise FileError(
            f"{path} cannot be read ({type(error).__name__}); remove it and start the same command again: the "
            "run then starts from its first step."
        ) from error
    return state


def read_records(folder: Path, domains: int, count: int | None = None) -> list[Record]:
    """The first ``count`` records of a run, or all; what cannot be read is refused."""
    if count == 0:
        return []
    lines, problems = read_lines(folder / RECORDS, count)
    if problems or (count is not None and len(lines) < count):
        raise FileError(
            f"{folder / RECORDS} has {len(lines)} records of {count or len(lines) + len(problems)}; remove its "
            "folder and run it again."
        )
    try:
        return [record_from(line, domains, finite=False) for line in lines]
    except InputError as error:
        raise FileError(
            f"{folder / RECORDS} has a line that is not a record ({str(error).rstrip('.')}); remove its folder "
            "and run it again."
        ) from error


def cut_records(folder: Path, records: Sequence[Record]) -> None:
    """Leave these records only."""
    path, text = folder / RECORDS, "".join(json_line(record.to_json()) for record in records)
    if not path.exists() or path.read_bytes() != text.encode("utf-8"):
        write_whole(path, text.encode("utf-8"))
