"""What a node holds for a while: temporary folders of runs, and copies of data and plugins that it lacks.

The launcher puts a copy into Ray's object store, as a tar file; a process that needs it unpacks it once, into a
temporary folder that lives as long as the process. Copies are used only where the node has no such path, or
has a file of other contents there: data on a file system that all nodes see is never copied.
"""

from __future__ import annotations

import atexit
import io
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from genie_dg.files import FileError, held_by, holder_file, lock
from genie_dg.runs import folder as files
from genie_dg.runs.seal import digest, digest_of

from ..options import Job

TEMPORARY = "genie-dg-"
"""How the temporary folders of runs on a node begin."""

SMALL = 100 * 10**6
"""Bytes that a file or folder may have to be sent to nodes."""


@dataclass(frozen=True)
class Copy:
    """A file or folder in Ray's object store.

    Args:
        digest: of the packed bytes.
        of_file: the digest of a single file's contents; empty for a folder.
        packed: a list of the one reference to the packed bytes; Ray fetches what stands in a list on demand.
    """

    digest: str
    of_file: str
    packed: list[Any]


Copies = Mapping[str, Copy]
"""By path at the launcher."""

_UNPACKED: dict[str, str] = {}
"""Where this process has unpacked copies, by digest."""

_HELD = ExitStack()
"""The temporary folders that this process holds until it ends."""

atexit.register(_HELD.close)


def size_of(path: Path, most: int = SMALL) -> int:
    """The bytes of a file, or of all files in a folder; counting ends above ``most``."""
    if not path.is_dir():
        return path.stat().st_size
    total = 0
    for place, _, names in os.walk(path, followlinks=True):
        total += sum(os.stat(os.path.join(place, name)).st_size for name in names)
        if total > most:
            break
    return total


def packed(path: Path) -> bytes:
    """A file or folder under its own name, as a tar file; links are followed."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", dereference=True) as archive:
        archive.add(path, arcname=path.name)
    return buffer.getvalue()


def copy_of(ray: Any, path: str) -> Copy:
    """Put a copy of what is at a path into the object store of a connected Ray."""
    data = packed(Path(path))
    of_file = digest_of(Path(path)) if Path(path).is_file() else ""
    return Copy(digest(data), of_file, [ray.put(data)])


def is_here(path: str, copies: Copies) -> bool:
    """Whether this machine has what is meant: a file of these contents, or anything where none are known."""
    copy = copies.get(path)
    if copy is None or not copy.of_file:
        return Path(path).exists()
    return Path(path).is_file() and digest_of(Path(path)) == copy.of_file


def job_here(job: Job, copies: Copies) -> Job:
    """The job with paths of this node: what it lacks is unpacked, once in each process."""

    def here(path: str) -> str:
        return path if path not in copies or is_here(path, copies) else _unpack(path, copies[path])

    options = job.options
    plugin = tuple(here(path) for path in options.plugin)
    changed = job.changed(plugin=plugin, root=here(options.root), weights=here(options.weights))
    return replace(changed, data=here(job.data))


def _unpack(path: str, copy: Copy) -> str:
    if copy.digest not in _UNPACKED:
        data = copy.packed[0].future().result()  # in ray.get this run would lend its CPUs
        place = Path(_HELD.enter_context(temporary_folder())) / "copy"
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            archive.extractall(place, filter="data")
        _UNPACKED[copy.digest] = str(place / Path(path).name)
    return _UNPACKED[copy.digest]


def with_paths_of_launcher(text: str, copies: Copies) -> str:
    """A message of this node, with the paths that the user knows."""
    for path, copy in copies.items():
        if copy.digest in _UNPACKED:
            text = text.replace(_UNPACKED[copy.digest], path)
    return text


@contextmanager
def temporary_folder() -> Iterator[str]:
    """A folder for one run or copy on this node, locked while it is used, and removed afterwards."""
    remove_left_folders()
    with tempfile.TemporaryDirectory(prefix=TEMPORARY) as place, lock(Path(place) / files.LOCK, "works there"):
        yield place


def remove_left_folders() -> None:
    """Remove the temporary folders of this user's processes that were killed before they could do it."""
    for folder in Path(tempfile.gettempdir()).glob(f"{TEMPORARY}*"):
        path = folder / files.LOCK
        try:
            if folder.stat().st_uid != os.getuid() or not holder_file(path).is_file() or held_by(path):
                continue
            with lock(path, "works there"):
                shutil.rmtree(folder, ignore_errors=True)
        except (OSError, FileError):  # not ours to remove, or gone meanwhile
            continue
