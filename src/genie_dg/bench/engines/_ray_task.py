"""What a Ray node does: train one run in a folder of its own, and send its files to the launcher.

No file system is shared. A node gets what the run's folder holds as bytes. After every checkpoint it leaves
the files that are new with the `FileRelay` actor, from which the launcher takes them. The launcher writes them
before the checkpoint that counts them, and ``done`` last, so one that is killed at any moment leaves a folder
from which the run goes on.
"""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from genie_dg.check import InputError
from genie_dg.data.registry import row_of
from genie_dg.files import write_whole
from genie_dg.runs.folder import (
    AVERAGE,
    AVERAGE_MODEL,
    BEFORE,
    CHECKPOINT,
    CONFIG,
    DONE,
    META,
    RECORDS,
    TIMINGS,
    WATCH,
    is_model,
    remove_checkpoints,
)
from genie_dg.runs.outcome import OUTCOMES, Ending, Outcome

from ..jobs import OpenSets, attempt
from ..options import Job
from ..status import RunState
from .engine import Update

_MODELS = "model*.pt"
"""Files of weights: ``model.pt`` and ``model-<step>.pt``."""

TO_RESUME = (
    CONFIG,
    META,
    RECORDS,
    TIMINGS,
    WATCH,
    OUTCOMES,
    _MODELS,
    CHECKPOINT,
)
"""What a run needs to go on, in the order in which it is written."""

_ALL = (*TO_RESUME, AVERAGE, AVERAGE_MODEL, DONE)

MOST_SENT = 100 * 10**6
"""Bytes that a file or folder may have to be sent to nodes."""

_OPENED = OpenSets()
"""What this process has opened; the next job that Ray gives it finds it open."""

RunFiles = dict[str, bytes]


class UnexpectedFile(InputError):
    """A worker sent a file that is not part of a run."""


def _order_of(name: object) -> int:
    """When a file is written, as an index of all files of a run; -1 for a name that is not one."""
    if isinstance(name, str) and is_model(name):
        return _ALL.index(_MODELS)
    return _ALL.index(name) if name in _ALL and name != _MODELS else -1


def run_files(
    folder: Path, names: tuple[str, ...] = _ALL, known: dict[str, tuple[int, ...]] | None = None
) -> RunFiles:
    """The named files that are there; those that ``known`` says were read before are left out."""
    read: RunFiles = {}
    for path in (path for name in names for path in sorted(folder.glob(name)) if _order_of(path.name) >= 0):
        status = path.stat()
        stamp = status.st_ino, status.st_mtime_ns, status.st_size
        if known is None or known.get(path.name) != stamp:
            read[path.name] = path.read_bytes()
        if known is not None:
            known[path.name] = stamp
    return read


def write_run_files(folder: Path, sent: Mapping[str, bytes]) -> None:
    """Write what was sent, each file whole, in an order from which the run can go on.

    A name that is not that of a run's file is refused before anything is written, and never used as a path.
    Who the run is (``config.json``, ``meta.json``) is written once. When ``done`` is there, checkpoints go, and
    so do weights that the complete run does not have, such as those of an attempt that kept more.

    >>> write_run_files(Path("runs/ab12"), {"../../notes": b""})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    genie_dg.bench.engines._ray_task.UnexpectedFile: A worker sent '../../notes', which is not a file of ...
    """
    for name in sent:
        if _order_of(name) < 0:
            raise UnexpectedFile(
                f"A worker sent {name!r}, which is not a file of a run; install the same version of this "
                "package on every node."
            )
    for name in sorted(sent, key=_order_of):
        if name in (CONFIG, META) and (folder / name).exists():
            continue
        before = folder / BEFORE if name == CHECKPOINT else None
        write_whole(folder / name, sent[name], before)
    if DONE in sent:
        remove_checkpoints(folder)
        for path in folder.glob(_MODELS):
            if is_model(path.name) and path.name not in sent:
                path.unlink()


class FileRelay:
    """Where workers leave news, each under the ticket of its attempt; a newer file replaces an older one."""

    def __init__(self) -> None:
        self._news: dict[str, tuple[int, RunFiles]] = {}

    def put(self, ticket: str, steps: int, sent: RunFiles) -> None:
        """Leave news; files that wait here and are not among it stay."""
        _, waiting = self._news.get(ticket, (0, {}))
        self._news[ticket] = (steps, {**waiting, **sent})

    def take(self) -> dict[str, tuple[int, RunFiles]]:
        """Everything since the last time."""
        news, self._news = self._news, {}
        return news


def train_on_node(
    job: Job, sent: RunFiles, ticket: str, mailbox: Any, staged: Mapping[str, str]
) -> tuple[Update, RunFiles]:
    """Train one job on this node; returns how that ended, and all files of the run if it is complete.

    Args:
        job: what to train; its ``out`` is the launcher's folder.
        sent: what the launcher has of the run.
        ticket: of this attempt.
        mailbox: a handle of the `FileRelay` actor. Every call is waited for, so what a worker left before it
            was killed is there.
        staged: by path at the launcher, the name of its copy in the working directory that Ray has made here.
    """
    copies = {path: str(Path(name).absolute()) for path, name in staged.items()}
    lacking = [path for path in paths_read_by(job) if path not in copies and not Path(path).exists()]
    if lacking:
        reason = (
            f"{lacking[0]} is missing on node {socket.gethostname()}; mount it there under the same path, or "
            f"give a folder that all nodes see (only what has at most {MOST_SENT // 10**6} MB is sent there)."
        )
        return Update(job.config.run_id, RunState.failed, outcome=Outcome(Ending.failed, reason)), {}
    known: dict[str, tuple[int, ...]] = {}
    with tempfile.TemporaryDirectory(prefix="genie-dg-") as place:
        there = _with_copies(job, copies).changed(out=place)
        there.folder.mkdir()
        for name, data in sent.items():
            (there.folder / name).write_bytes(data)
        run_files(there.folder, TO_RESUME, known)

        def tell(update: Update) -> None:
            files = run_files(there.folder, TO_RESUME, known)
            # in ray.get this run would lend its CPUs
            mailbox.put.remote(ticket, update.steps, files).future().result()

        update = attempt(there, _OPENED, tell)
        files = run_files(there.folder, _ALL if update.state is RunState.done else (OUTCOMES,))
    for here, at_launcher in {place: job.options.out, **{copy: path for path, copy in copies.items()}}.items():
        files[OUTCOMES] = files[OUTCOMES].replace(here.encode(), at_launcher.encode())
    return replace(update, outcome=None), files


def paths_read_by(job: Job) -> list[str]:
    """What a job with whole paths reads, besides embedded sets."""
    row = row_of(job.data)
    data = job.data if row is None else "" if row.kind == "embedded" else job.options.root
    return [path for path in (data, job.options.weights, *job.options.plugin) if path]


def _with_copies(job: Job, copies: Mapping[str, str]) -> Job:
    """The job with the paths of copies."""

    def here(path: str) -> str:
        return copies.get(path, path)

    options = job.options
    plugin = tuple(here(path) for path in options.plugin)
    changed = job.changed(plugin=plugin, root=here(options.root), weights=here(options.weights))
    return replace(changed, data=here(job.data))
