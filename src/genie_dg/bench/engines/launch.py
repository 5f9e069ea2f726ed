"""The loop above the engines: which jobs are due, which are tried again, and how each ended.

A run that fails is tried again from its last checkpoint while retries are left, and then reported with its
reason; one that diverged would diverge again and is not. An attempt that was interrupted, by a preemption or
the loss of a node, costs no retry. Two launchers on one sweep train no run twice, because a run's folder has
a lock: a run that another launcher has is offered again a moment later, until that one has finished it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from genie_dg.check import whole_number
from genie_dg.runs.outcome import Ending, Outcome, note_outcome, read_outcomes

from ..options import Job
from ..status import RunState
from .engine import Engine, EngineOptions, Tell, Update
from .registry import build_engine

AGAIN = 1.0
"""Seconds before a run that another launcher has is offered to the engine again."""


@dataclass
class LaunchResult:
    """How a launch ended: the ids of the runs that are done, and why the others failed."""

    done: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


def launch(
    jobs: Sequence[Job],
    engine: Engine | str = "local",
    *,
    workers: int = 1,
    retries: int = 1,
    device: str = "",
    report: Tell | None = None,
) -> LaunchResult:
    """Train all jobs that are not done; returns when each is done or has failed for good.

    Args:
        jobs: what to train.
        engine: where: the name of a row of `genie_dg.bench.engines.registry.ENGINES`, or an engine, which then
            knows its workers and its device.
        workers: how many at a time; they change nothing in the results.
        retries: how often a job that failed is tried again.
        device: for all runs; by default GPUs in turn, or the CPU.
        report: called with every update.
    """
    if isinstance(engine, str):
        engine = build_engine(engine, EngineOptions(whole_number("workers", workers), device))
    try:
        loop = _Launch(jobs, engine, whole_number("retries", retries, 0), report or (lambda update: None))
        loop.run()
    finally:
        engine.cancel()
    return loop.launched


class _Launch:
    """The state of one launch; `run` is its loop."""

    def __init__(self, jobs: Sequence[Job], engine: Engine, retries: int, report: Tell) -> None:
        self.engine, self.retries, self.report = engine, retries, report
        self.launched = LaunchResult([job.config.run_id for job in jobs if job.done])
        self.waiting = deque((0.0, job) for job in jobs if not job.done)
        self.running: dict[str, tuple[Job, int]] = {}
        """By run, and how many outcomes it had when it was submitted."""
        self.failures: dict[str, int] = {}

    def run(self) -> None:
        if self.waiting:
            self.engine.start([job for _, job in self.waiting])
        while self.waiting or self.running:
            self._submit()
            self.engine.poll(self._hear)

    def _submit(self) -> None:
        """Offer what is due to the engine; runs that another launcher has finished meanwhile are done."""
        due: list[Job] = []
        room = self.engine.room
        for _ in range(len(self.waiting)):
            if len(due) >= room:
                break
            when, job = self.waiting.popleft()
            if job.done:
                self._finish(job)
            elif when > time.monotonic():
                self.waiting.append((when, job))
            else:
                due.append(job)
        if not due:
            return
        self.running |= {job.config.run_id: (job, len(read_outcomes(job.folder))) for job in due}
        for job in self.engine.submit(due):
            self._hear(Update(job.config.run_id, RunState.stopped))

    def _hear(self, update: Update) -> None:
        if update.run not in self.running:
            return
        if update.state is RunState.running:
            self.report(update)
            return
        job, known = self.running.pop(update.run)
        if job.done:
            self._finish(job)
        elif update.state is RunState.stopped and update.outcome is None:
            self.waiting.append((time.monotonic() + AGAIN, job))
            self.report(update)
        else:
            self._end(job, update, known)

    def _end(self, job: Job, update: Update, known: int) -> None:
        """An attempt has ended and the run is not complete: note why, unless the attempt did, and decide."""
        noted = read_outcomes(job.folder)[known:]
        unknown = Outcome(Ending.failed, "It ended without a reason and is not complete.")
        outcome = noted[-1] if noted else note_outcome(job.folder, update.outcome or unknown)
        interrupted = update.state is RunState.stopped and not noted
        self.failures[update.run] = self.failures.get(update.run, 0) + (not interrupted)
        more = outcome.ending is Ending.failed and self.failures[update.run] <= self.retries
        if interrupted or more:
            self.waiting.append((0.0, job))
            self.report(Update(update.run, RunState.stopped, outcome=outcome))
        else:
            self.launched.failed[update.run] = str(outcome)
            self.report(Update(update.run, RunState.failed, outcome=outcome))

    def _finish(self, job: Job) -> None:
        self.launched.done.append(job.config.run_id)
        self.report(Update(job.config.run_id, RunState.done, job.config.steps))
