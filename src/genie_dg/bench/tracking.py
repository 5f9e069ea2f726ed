"""Curves of a run for trackers: MLflow, Weights & Biases, TensorBoard, or one of your own.

Tracking is no part of what a run is, and cannot disturb it: a tracker that fails is told in one sentence and
tried again a minute later. What a run holds is in its records, so points that a tracker lacks, for whatever
reason, are sent when the run goes on; which those are, the tracker says.
"""

from __future__ import annotations

import platform
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from genie_dg import __version__
from genie_dg.files import Busy, FileError, FileWarning
from genie_dg.runs import folder as files
from genie_dg.runs.record import Record

from .assemble import Parts
from .options import RunOptions
from .trackers.tracker import State, TrackedRun, Tracker, TrackerRow, check_trackers

Report = Callable[[int, Record | None], None]
PAUSE = 60.0
"""Seconds until a tracker that failed is tried again."""


def parameters_of(parts: Parts) -> dict[str, str | int | float | bool]:
    """The configuration of a run and the versions behind it, as plain values."""
    values: dict[str, object] = {}
    for name, value in asdict(parts.config).items():
        values |= {f"{name}.{key}": x for key, x in value.items()} if isinstance(value, dict) else {name: value}
    values["test_domains"] = ", ".join(parts.domains[k] for k in parts.config.test_domains)
    values["average_of"] = ", ".join(parts.config.average_of)
    values |= {"version.genie_dg": __version__, "version.torch": str(torch.__version__)}
    values |= {"version.python": platform.python_version(), "device": str(parts.device)}
    return {name: x if isinstance(x, str | int | float) else str(x) for name, x in values.items()}


def curves_of(record: Record, domains: Sequence[str], test_domains: Sequence[int]) -> dict[str, float]:
    """The points of a record by curve: losses, validation accuracy, and accuracies by domain and part.

    >>> record = Record(0, 0.0, 2.0, None, (None, 0.5), (0.25, 0.75))
    >>> curves_of(record, ["photo", "sketch"], [1])  # doctest: +NORMALIZE_WHITESPACE
    {'loss': 2.0, 'validation': 0.25, 'seen/photo/out': 0.25,
     'unseen/sketch/in': 0.5, 'unseen/sketch/out': 0.75}
    """
    values: dict[str, float | None] = {"loss": record.loss, "validation_loss": record.validation_loss}
    if len(test_domains) < len(domains):
        values["validation"] = record.validation(test_domains)
    for k, domain in enumerate(domains):
        kind = "unseen" if k in test_domains else "seen"
        values |= {f"{kind}/{domain}/in": record.in_acc[k], f"{kind}/{domain}/out": record.out_acc[k]}
    return {name: value for name, value in values.items() if value is not None}


class Sending:
    """What one tracker has not been sent yet, and the tracker while it works.

    Args:
        row: of the tracker.
        run: what it is told of the run.
    """

    def __init__(self, row: TrackerRow, run: TrackedRun) -> None:
        self._row, self._run = row, run
        self._tracker: Tracker | None = None
        self._held: set[tuple[str, int]] = set()
        self._waiting: dict[int, Mapping[str, float]] = {}
        self._again_at, self._told = 0.0, False

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Points that the tracker should have."""
        self._waiting[step] = values

    def send(self) -> None:
        """Send what waits; where that fails it waits on, and nobody is disturbed."""
        if time.monotonic() >= self._again_at:
            self._try(self._send)

    def end(self, state: State) -> None:
        """Send the rest, and say how the run ended."""

        def last() -> None:
            self._send().end(state)

        self._try(last)

    def _send(self) -> Tracker:
        if self._tracker is None:
            tracker = self._row.open(self._run)
            self._held = tracker.held()
            self._tracker = tracker
        for step in sorted(self._waiting):
            new = {name: x for name, x in self._waiting[step].items() if (name, step) not in self._held}
            if new:
                self._tracker.log(step, new)
            self._held |= {(name, step) for name in new}
            del self._waiting[step]
        return self._tracker

    def _try(self, work: Callable[[], object]) -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a library's own, of no use to whoever trains
                work()
        except Exception as error:  # a tracker may fail in any way, and training goes on
            self._tracker, self._again_at = None, time.monotonic() + PAUSE
            if not self._told:
                self._told = True
                self._warn(error)

    def _warn(self, error: Exception) -> None:
        reason = (str(error).strip() or "no reason given").splitlines()[0].rstrip(".")
        warnings.warn(
            f"{self._row.name} does not track {self._run.name} ({type(error).__name__}: {reason[:300]}); the "
            "run goes on without it, and what is missing is sent later if it works again.",
            FileWarning,
            stacklevel=5,
        )


def train_tracked(
    parts: Parts,
    folder: Path,
    options: RunOptions,
    train: Callable[[Report | None], list[Record]],
    report: Report | None = None,
) -> list[Record]:
    """Train with a report that also tracks, and say how it ended; returns what ``train`` returns.

    Nothing is opened before the run's folder is locked: a run that another process trains is not touched.

    Args:
        parts: of the run.
        folder: of the run.
        options: of the run; they name the trackers.
        train: called with the report.
        report: called first.
    """
    rows = check_trackers(options.tracks) if parts.world.first else []
    if not rows:
        return train(report)
    run = TrackedRun(parts.config.run_id, options.group, folder, parameters_of(parts))
    sending = [Sending(row, run) for row in rows]
    try:
        records = train(_tracked(parts, folder, sending, report))
    except Busy:
        raise
    except BaseException as error:
        for one in sending:
            one.end("failed" if isinstance(error, Exception) else "stopped")
        raise
    _add(parts, sending, records)
    for one in sending:
        one.end("finished")
    return records


def _tracked(parts: Parts, folder: Path, sending: Sequence[Sending], report: Report | None) -> Report:
    """A report that sends every record, and at its first call all records that were there before."""
    begun: list[bool] = []

    def tracked(done: int, record: Record | None) -> None:
        if report is not None:
            report(done, record)
        if record is None and begun:
            return
        _add(parts, sending, [record] if begun and record is not None else _records(parts, folder))
        begun.append(True)
        for one in sending:
            one.send()

    return tracked


def _records(parts: Parts, folder: Path) -> list[Record]:
    try:
        return files.read_records(folder, len(parts.domains))
    except FileError:  # the complete run has them all
        return []


def _add(parts: Parts, sending: Sequence[Sending], records: Sequence[Record]) -> None:
    for record in records:
        values = curves_of(record, parts.domains, parts.config.test_domains)
        for one in sending:
            one.add(record.step, values)
