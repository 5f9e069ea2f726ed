"""Runs that are trained away from home: which files travel, how they come home, and the function that trains.

No file system is shared. A node gets what the run's folder at home holds as bytes and trains in a temporary
folder of its own; after every checkpoint it leaves its files in a `Mailbox`, which the launcher empties. At
home the records are written before the checkpoint that counts them, and ``done`` last, so a launcher that is
killed at any moment leaves a folder from which the run goes on.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from genie_dg.runs import folder as disk

from .jobs import Shelf, from_json, run_job

TRAVELLING = (disk.CONFIG, disk.META, disk.RECORDS, disk.TIMINGS, disk.CHECKPOINT)
"""What a run needs to go on, in the order in which it is written."""

RESULTS = (*TRAVELLING, disk.MODEL, "swad.json", "swad.pt", disk.DONE)
"""Every file that may come home, in the order in which it is written."""

EVERY = 0.2
"""Seconds between two reports of progress."""

Files = dict[str, bytes]
News = tuple[int, Files]
"""Steps done, and the files of the last checkpoint when there was one since the mailbox was emptied."""

SHELF = Shelf()
"""What this process has opened; the next job that Ray gives it finds it open."""


class StrangeFile(ValueError):
    """A worker sent a file that is no part of a run."""


def files_at(folder: Path, names: tuple[str, ...]) -> Files:
    """Those of the named files that are there."""
    return {name: (folder / name).read_bytes() for name in names if (folder / name).exists()}


def check_names(names: Mapping[str, object]) -> None:
    """Refuse any name that is not in `RESULTS`; what a worker calls a file is never used as a path.

    >>> check_names({"../../notes": b""})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    genie_dg.bench.ray_home.StrangeFile: A worker sent '../../notes', which is no file of a run; only ...
    """
    for name in names:
        if name not in RESULTS:
            raise StrangeFile(
                f"A worker sent {name!r}, which is no file of a run; only {', '.join(RESULTS)} may come home: "
                "install the same version of this package on every node."
            )


def bring_home(folder: Path, files: Files) -> None:
    """Write what came, each file whole, in the order of `RESULTS`; nothing is written when a name is refused.

    Who the run is (``config.json``, ``meta.json``) is written once. The checkpoint goes when ``done`` has come.
    """
    check_names(files)
    for name in RESULTS:
        known = name in (disk.CONFIG, disk.META) and (folder / name).exists()
        if name in files and not known:
            disk.write_whole(folder / name, files[name])
    if disk.DONE in files:
        (folder / disk.CHECKPOINT).unlink(missing_ok=True)


def clear_parts(folder: Path) -> None:
    """Remove what a launcher that was killed while it wrote has left; the folder's lock must be held."""
    for left_over in folder.glob("*.part"):
        left_over.unlink()


class Mailbox:
    """Where workers leave news, each under the ticket of its try; newer files replace older ones."""

    def __init__(self) -> None:
        self.news: dict[str, News] = {}

    def put(self, ticket: str, done: int, files: Files) -> None:
        """Leave news; without files, those that wait here stay."""
        _, waiting = self.news.get(ticket, (0, {}))
        self.news[ticket] = (done, files or waiting)

    def take(self) -> dict[str, News]:
        """Everything since the last time."""
        news, self.news = self.news, {}
        return news


def train_away(job_json: str, files: Files, ticket: str, mailbox: Any) -> tuple[str, Files]:
    """Train one job on this node; returns why it failed, or "" and all files of the complete run.

    Args:
        job_json: of the job, as `Job.to_json` writes it; its ``out`` is the folder at home.
        files: what home has of the run.
        ticket: of this try.
        mailbox: a handle of the `Mailbox` actor. Every call is waited for, so what a worker left before
            it was killed is there.
    """
    home, last = from_json(job_json), [time.monotonic()]

    def tell(done: int, sent: Files) -> None:
        mailbox.put.remote(ticket, done, sent).future().result()  # in ray.get this run would lend out its CPUs

    with tempfile.TemporaryDirectory(prefix="genie-dg-") as place:
        job = replace(home, out=place)

        def report(done: int, record: dict[str, Any] | None) -> None:
            if record is not None or time.monotonic() - last[0] > EVERY:
                tell(done, files_at(job.folder, TRAVELLING) if record is not None else {})
                last[0] = time.monotonic()

        try:
            tell(0, {})
            job.folder.mkdir()
            for name, data in files.items():
                disk.write_whole(job.folder / name, data)
            run_job(job, SHELF, report)
            return "", files_at(job.folder, RESULTS)
        except Exception as error:  # whatever it is, it becomes a line of the sweep's report
            return f"{type(error).__name__}: {error}".replace(place, home.out), {}
