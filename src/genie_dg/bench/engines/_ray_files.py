"""Runs that are trained on another node: which files are sent, how they are written, what trains them.

No file system is shared. A node gets what the run's folder holds as bytes and trains in a temporary folder of
its own, which the next run there removes if this one is killed. After every checkpoint it leaves its files
with the `Progress` actor, from which the launcher takes them: records, lines of ``watch.jsonl`` and weights are
at home while the run goes on. There they are written before the checkpoint that counts them, and ``done`` last,
so a launcher that is killed at any moment leaves a folder from which the run goes on. Data and plugins that a
node lacks are sent to it as well: see `genie_dg.bench.engines._ray_nodes`.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from genie_dg.check import InputError
from genie_dg.files import write_whole
from genie_dg.runs import folder as files
from genie_dg.runs.seal import digest

from ..jobs import OpenSets, run_job
from ..options import job_from
from ._ray_copies import Copies, job_here, temporary_folder, with_paths_of_launcher

MODELS = "model*.pt"
"""Files of weights: ``model.pt`` and ``model-<step>.pt``."""

TO_RESUME = (files.CONFIG, files.META, files.RECORDS, files.TIMINGS, files.WATCH, MODELS, files.CHECKPOINT)
"""What a run needs to go on, in the order in which it is written."""

ALL = (*TO_RESUME, files.AVERAGE, files.AVERAGE_MODEL, files.DONE)
"""Every file that may be sent back, in the order in which it is written."""

EVERY = 0.2
"""Seconds between two reports of progress."""

Files = dict[str, bytes]
News = tuple[int, Files]
"""Steps done, and the files of the last checkpoint when there was one since the last look."""

OPENED = OpenSets()
"""What this process has opened; the next job that Ray gives it finds it open."""


class UnexpectedFile(InputError):
    """A worker sent a file that is not part of a run."""


def order_of(name: object) -> int:
    """When a file is written, as a place in `ALL`; -1 for a name that is not there."""
    if isinstance(name, str) and files.is_model(name):
        return ALL.index(MODELS)
    return ALL.index(name) if name in ALL and name != MODELS else -1


def files_at(folder: Path, names: tuple[str, ...], known: Collection[str] = ()) -> Files:
    """Those of the named files that are there; weights of one record, once known, are not read again."""
    paths = [path for name in names for path in sorted(folder.glob(name)) if order_of(path.name) >= 0]
    once = {name for name in known if files.is_model(name) and name != files.MODEL}
    return {path.name: path.read_bytes() for path in paths if path.name not in once}


def check_names(names: Mapping[str, object]) -> None:
    """Refuse any name that is not in `ALL`; what a worker calls a file is never used as a path.

    >>> check_names({"../../notes": b""})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    genie_dg.bench.engines._ray_files.UnexpectedFile: A worker sent '../../notes', which is not a file of a ...
    """
    for name in names:
        if order_of(name) < 0:
            raise UnexpectedFile(
                f"A worker sent {name!r}, which is not a file of a run; only {', '.join(ALL)} are accepted: "
                "install the same version of this package on every node."
            )


def write_files(folder: Path, sent: Files) -> None:
    """Write what was sent, each file whole, in the order of `ALL`; nothing is written when a name is refused.

    Who the run is (``config.json``, ``meta.json``) is written once. When ``done`` is there, checkpoints go, and
    so do weights that the complete run does not have, such as those of a try that kept more.
    """
    check_names(sent)
    for name in sorted(sent, key=order_of):
        if name in (files.CONFIG, files.META) and (folder / name).exists():
            continue
        before = folder / files.BEFORE if name == files.CHECKPOINT else None
        write_whole(folder / name, sent[name], before)
    if files.DONE in sent:
        files.remove_checkpoints(folder)
        for path in folder.glob(MODELS):
            if files.is_model(path.name) and path.name not in sent:
                path.unlink()


class Progress:
    """Where workers leave news, each under the ticket of its try; a newer file replaces an older one."""

    def __init__(self) -> None:
        self.news: dict[str, News] = {}

    def put(self, ticket: str, done: int, sent: Files) -> None:
        """Leave news; files that wait here and are not among it stay."""
        _, waiting = self.news.get(ticket, (0, {}))
        self.news[ticket] = (done, {**waiting, **sent})

    def take(self) -> dict[str, News]:
        """Everything since the last time."""
        news, self.news = self.news, {}
        return news


def unsent(present: Files, known: dict[str, str]) -> Files:
    """What has another digest than the last time: files of weights are large, and most stay as they are."""
    changed = {name: data for name, data in present.items() if known.get(name) != digest(data)}
    known.update({name: digest(data) for name, data in changed.items()})
    return changed


def train_remotely(
    job_json: str, sent: Files, ticket: str, progress: Any, copies: Copies | None = None
) -> tuple[str, Files]:
    """Train one job on this node; returns why it failed, or "" and all files of the complete run.

    Args:
        job_json: of the job, as `Job.to_json` writes it; its ``out`` is the launcher's folder.
        sent: what the launcher has of the run.
        ticket: of this try.
        progress: a handle of the `Progress` actor. Every call is waited for, so what a worker left before
            it was killed is there.
        copies: of data and plugins, for a node that lacks them.
    """
    copies = copies or {}
    job, last, known = job_from(job_json), [time.monotonic()], dict[str, str]()
    out = job.options.out

    def tell(done: int, files_now: Files) -> None:
        progress.put.remote(
            ticket, done, files_now
        ).future().result()  # in ray.get this run would lend its CPUs

    with temporary_folder() as place:
        job = job.changed(out=place)

        def report(done: int, record: Any) -> None:
            if record is not None or time.monotonic() - last[0] > EVERY:
                present = files_at(job.folder, TO_RESUME, known) if record is not None else {}
                tell(done, unsent(present, known))
                last[0] = time.monotonic()

        try:
            tell(0, {})
            job.folder.mkdir()
            for name, data in sent.items():
                write_whole(job.folder / name, data)
            run_job(job_here(job, copies), OPENED, report)
            return "", files_at(job.folder, ALL)
        except Exception as error:  # whatever it is, it becomes a line of the sweep's report
            reason = f"{type(error).__name__}: {error}".replace(place, out)
            return with_paths_of_launcher(reason, copies), {}
