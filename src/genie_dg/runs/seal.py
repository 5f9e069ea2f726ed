"""``done`` seals a run: it holds a digest of every file that the complete run consists of.

A finished run of which a file was changed or lines were lost is then known. Nothing is known of the files of a
run whose ``done`` is empty, and they are read as they are.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path

import msgspec

from genie_dg.files import FileError, read_stream, read_whole, write_whole

from .folder import AVERAGE, CONFIG, DONE, META, RECORDS, is_sealed

_NEEDED = (CONFIG, META, RECORDS)
"""What every seal has a digest of."""
_MOST_BYTES = 2**36
RUN_ID = re.compile(r"[0-9a-f]{16}")


class _Seal(msgspec.Struct):
    """What ``done`` holds."""

    files: dict[str, str]


def digest(data: bytes) -> str:
    """The digest of some bytes."""
    return hashlib.sha256(data).hexdigest()


def digest_of(path: Path) -> str:
    """The digest of a file, read piece by piece."""
    whole = hashlib.sha256()
    with read_stream(path, _MOST_BYTES) as file:
        while block := file.read(2**20):
            whole.update(block)
    return whole.hexdigest()


def seal_text(digests: dict[str, str]) -> bytes:
    """What ``done`` holds, from the digests of files by name."""
    return (json.dumps({"files": digests}, indent=1, sort_keys=True) + "\n").encode("ascii")


def seal(folder: Path) -> None:
    """Mark a run as complete, with a digest of each file it has, but for lock, checkpoints and outcomes."""
    present = sorted(path.name for path in folder.iterdir() if path.is_file() and is_sealed(path.name))
    try:
        text = seal_text({name: digest_of(folder / name) for name in present})
    except OSError as error:
        raise FileError(f"{error.filename} cannot be read ({error.strerror}); run it again.") from error
    write_whole(folder / DONE, text)


def sealed_files(text: bytes) -> dict[str, str]:
    """The digests in a ``done``, by name of file; none in an empty one. What is no seal is a `ValueError`."""
    if not text.strip():
        return {}
    files = msgspec.json.decode(text, type=_Seal).files
    if missing := [name for name in _NEEDED if name not in files]:
        raise ValueError(f"it has no digest of {missing[0]}")
    return files


def differs(path: str, name: str, data: bytes | None, files: dict[str, str]) -> str:
    """Why a file is not the one that was sealed, in a few words; empty when it is, or nothing was sealed.

    >>> differs("runs/ab", "records.jsonl", b"", {})
    ''
    >>> differs("runs/ab", "records.jsonl", b"", {"records.jsonl": digest(b"{}")})
    'runs/ab/records.jsonl was changed after the run was finished'
    """
    if name not in files or (data is not None and digest(data) == files[name]):
        return ""
    return f"{path}/{name} {'is missing' if data is None else 'was changed after the run was finished'}"


def other_name(path: str, config: str, files: dict[str, str]) -> str:
    """Why the configuration of a sealed run does not belong to its folder, in a few words.

    Only a folder that is named like a run says which run it holds; copies may have any other name.
    """
    name = os.path.basename(os.path.normpath(path))
    if not files or name == config or not RUN_ID.fullmatch(name):
        return ""
    return f"{path} holds the run {config}, not the one it is named after"


def check_seal(folder: Path) -> None:
    """Refuse a finished run whose configuration, names of domains, records or average were changed or lost."""
    try:
        files, words = sealed_files(read_whole(folder / DONE)), ""
    except (OSError, ValueError) as error:
        files, words = {}, f"{folder / DONE} cannot be read ({error})"
    for name in (*_NEEDED, AVERAGE):
        data = read_whole(folder / name) if (folder / name).is_file() else None
        words = words or differs(str(folder), name, data, files)
    if words:
        raise FileError(f"{words}; remove its folder and run it again.")
