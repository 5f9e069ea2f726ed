"""Many runs in one compressed file: ``runs.tar.xz``, small enough to be committed beside a study.

`pack` writes it: configuration, names, records, times, measurements, command and seal of each complete run,
the same and the outcomes of a run that diverged, and the files of sweeps; weights stay where they are. A folder
that holds the file is read as a folder of these runs. It is an ordinary archive
(``tar -xf runs.tar.xz -C runs``), so a sweep can go on from what it holds.

Only regular files with the names of a run's small files are ever unpacked, up to a sane size in all.
"""

from __future__ import annotations

import atexit
import functools
import io
import lzma
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from genie_dg.check import InputError
from genie_dg.files import FileError, read_stream, read_whole, write_whole

from .folder import AVERAGE, CONFIG, DONE, LAUNCH, META, RECORDS, TIMINGS, WATCH, is_done
from .outcome import OUTCOMES, Ending, read_outcomes
from .seal import RUN_ID
from .sweep_list import FOLDER as SWEEPS

ARCHIVE = "runs.tar.xz"
_KEPT = (CONFIG, META, RECORDS, TIMINGS, WATCH, AVERAGE, LAUNCH, DONE)
"""What is kept of a run."""
_OF_DIVERGED = (*_KEPT, OUTCOMES)
"""What is kept of a run that diverged."""
_OF_SWEEPS = (".json", ".toml")
"""Endings of the files of sweeps: their lists, and the files that they were started from."""
_MOST_PACKED, _MOST_UNPACKED = 2**28, 2**32
"""Bytes of an archive, and of what it unpacks to; more is not an archive of ours."""


def pack_runs(folder: Path, archive: Path) -> tuple[int, int]:
    """Write the complete runs of a folder, and those that diverged, to an archive, which keeps what it has.

    The same runs give the same bytes.

    Returns:
        How many runs the archive holds, and how many of them are new.
    """
    members = dict(_members(archive)) if archive.exists() else {}
    before = _runs_in(members)
    for run in folder.iterdir():
        if RUN_ID.fullmatch(run.name):
            diverged = any(one.ending == Ending.diverged for one in read_outcomes(run)[-1:])
            kept = _KEPT if is_done(run) else _OF_DIVERGED if diverged else ()
            members |= {f"{run.name}/{name}": _file(run / name) for name in kept if (run / name).is_file()}
    for file in (folder / SWEEPS).glob("*"):
        if file.suffix in _OF_SWEEPS:
            members[f"{SWEEPS}/{file.name}"] = _file(file)
    after = _runs_in(members)
    if not after:
        raise InputError(f"{folder} has no complete run; name a folder that genie-dg train or sweep wrote.")
    write_whole(archive, _packed(members))
    return len(after), len(after - before)


@functools.cache
def unpacked(archive: str) -> str:
    """A temporary folder with what an archive holds: made once, and removed when the process ends."""
    target = tempfile.mkdtemp(prefix="genie-dg-runs-")
    atexit.register(shutil.rmtree, target, ignore_errors=True)
    for name, (data, written) in _members(Path(archive)):
        file = Path(target, name)
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(data)
        os.utime(file, (written, written))
    return target


_Contents = tuple[bytes, int]
"""Of a file: its bytes, and when it was written, in seconds."""


def _file(path: Path) -> _Contents:
    try:
        return read_whole(path), int(path.stat().st_mtime)
    except OSError as error:
        raise FileError(f"{path} cannot be read ({error.strerror}); nothing was packed.") from error


def _runs_in(members: dict[str, _Contents]) -> set[str]:
    return {name.partition("/")[0] for name in members if name.endswith((f"/{DONE}", f"/{OUTCOMES}"))}


def _packed(members: dict[str, _Contents]) -> bytes:
    """The archive: sorted by kind of file first, so that what is alike is compressed together."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in sorted(members, key=lambda name: name.partition("/")[::-1]):
            data, written = members[name]
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(data), written
            tar.addfile(info, io.BytesIO(data))
    return lzma.compress(buffer.getvalue(), preset=9 | lzma.PRESET_EXTREME)


def _members(archive: Path) -> Iterator[tuple[str, _Contents]]:
    """Names and contents of an archive's files; one with anything else in it is refused."""
    left = _MOST_UNPACKED
    try:
        with read_stream(archive, _MOST_PACKED) as stream, tarfile.open(fileobj=stream, mode="r|xz") as tar:
            for member in tar:
                left -= member.size
                if not member.isreg() or not _is_ours(member.name) or left < 0:
                    raise ValueError(f"it holds {member.name!r}, which is not a file of a run")
                file = tar.extractfile(member)
                data = b"" if file is None else file.read()
                yield member.name, (data, int(member.mtime))
    except (OSError, ValueError, EOFError, tarfile.TarError, lzma.LZMAError) as error:
        why = str(error).rstrip(".")
        raise InputError(
            f"{archive} is not an archive of runs ({why}); get it again, or write it with genie-dg pack."
        ) from error


def _is_ours(name: str) -> bool:
    """Whether a member is a small file of a run, or a file of a sweep.

    >>> _is_ours("0123456789abcdef/done"), _is_ours("0123456789abcdef/model.pt"), _is_ours("../done")
    (True, False, False)
    """
    folder, _, file = name.partition("/")
    of_sweep = folder == SWEEPS and file.endswith(_OF_SWEEPS) and "/" not in file and not file.startswith(".")
    return of_sweep or (RUN_ID.fullmatch(folder) is not None and file in _OF_DIVERGED)
