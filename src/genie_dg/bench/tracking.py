"""Curves of a run for trackers: MLflow, Weights & Biases, TensorBoard, or one of your own.

Tracking is no part of what a run is, and cannot disturb it: a tracker that fails is warned of once and tried
again a minute later. Each record is sent when it is made; what is made while a tracker is away is not sent
later, since a run's records are in its folder.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from genie_dg import __version__
from genie_dg.files import Busy, FileWarning
from genie_dg.runs.folder import is_done
from genie_dg.runs.outcome import Ending, outcome_of
from genie_dg.runs.record import Record

from .assemble import Parts
from .options import RunOptions
from .trackers.tracker import TrackedRun, Tracker, TrackerRow, check_trackers
from .train import Report

PAUSE = 60.0
"""Seconds until a tracker that failed is tried again."""


def parameters_of(parts: Parts) -> dict[str, str | int | float | bool]:
    """The configuration of a run and the versions behind it, as plain values."""
    values: dict[str, object] = {}
    for name, value in asdict(parts.config).items():
        values |= {f"{name}.{key}": x for key, x in value.items()} if isinstance(value, dict) else {name: value}
    values["test_domains"] = ", ".join(parts.domains[k] for k in parts.config.test_domains)
    values |= {"version.genie_dg": __version__, "version.torch": str(torch.__version__)}
    return {name: x if isinstance(x, str | int | float) else str(x) for name, x in values.items()}


def points_of(record: Record, domains: Sequence[str], test_domains: Sequence[int]) -> dict[str, float]:
    """The points of a record by curve: losses, validation accuracy, and accuracies by domain and part.

    >>> record = Record(0, 0.0, 2.0, None, (None, 0.5), (0.25, 0.75))
    >>> points_of(record, ["photo", "sketch"], [1])  # doctest: +NORMALIZE_WHITESPACE
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


class _Guarded:
    """A tracker that is opened when it is first needed, and whose failures disturb nobody."""

    def __init__(self, row: TrackerRow, run: TrackedRun) -> None:
        self._row, self._run = row, run
        self._tracker: Tracker | None = None
        self._open_from, self._warned = 0.0, False

    def attempt(self, work: Callable[[Tracker], object], patient: bool = True) -> None:
        """Work with the tracker; ``patient`` leaves one alone that failed a moment ago."""
        if patient and time.monotonic() < self._open_from:
            return
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a library's own, of no use to whoever trains
                if self._tracker is None:
                    self._tracker = self._row.open(self._run)
                work(self._tracker)
        except Exception as error:  # a tracker may fail in any way, and training goes on
            self._tracker, self._open_from = None, time.monotonic() + PAUSE
            if not self._warned:
                self._warned = True
                reason = (str(error).strip() or "no reason given").splitlines()[0].rstrip(".")
                what = (
                    f"{self._row.name} does not track {self._run.name} ({type(error).__name__}: {reason[:300]})"
                )
                then = "the run goes on without it, and it is tried again a minute later"
                warnings.warn(f"{what}; {then}.", FileWarning, stacklevel=3)


_Train = Callable[[Report | None], list[Record]]


def train_tracked(
    parts: Parts, folder: Path, options: RunOptions, train: _Train, report: Report | None = None
) -> list[Record]:
    """Train with a report that also tracks, and say how it ended; returns what ``train`` returns.

    Nothing is opened before the run's folder is locked: a run that another process trains is not touched.

    Args:
        parts: of the run.
        folder: of the run.
        options: of the run; they name the trackers.
        train: called with the report.
        report: called after each step, after the trackers.
    """
    rows = check_trackers(options.tracks) if parts.world.first else []
    if not rows or is_done(folder):
        return train(report)
    run = TrackedRun(parts.config.run_id, options.group, folder, parameters_of(parts))
    trackers = [_Guarded(row, run) for row in rows]

    def tracked(done: int, record: Record | None) -> None:
        if record is not None:
            points = points_of(record, parts.domains, parts.config.test_domains)
            for guarded in trackers:
                guarded.attempt(lambda tracker: tracker.log(record.step, points))
        if report is not None:
            report(done, record)

    ending = Ending.finished
    try:
        return train(tracked)
    except Busy:
        trackers.clear()
        raise
    except BaseException as error:
        ending = outcome_of(error).ending
        raise
    finally:
        for guarded in trackers:
            guarded.attempt(lambda tracker: tracker.end(ending), patient=False)
