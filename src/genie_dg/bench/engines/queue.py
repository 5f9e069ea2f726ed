"""What the engines share: events, the outcome, and the queue of jobs with its retries."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from genie_dg.files import append_line
from genie_dg.runs import folder as files

from ..options import Job

WAIT = 1.0
"""Seconds before a run that another launcher holds is looked at again."""


@dataclass(frozen=True)
class Event:
    """What happened to a run: started, progress, done, busy, retry or failed."""

    kind: str
    run: str
    done: int = 0
    reason: str = ""


EventReport = Callable[[Event], None]


@dataclass
class Outcome:
    """How a launch ended: the ids of the runs that are done, and why the others failed."""

    done: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


class Queue:
    """The jobs that are not done: which are due, how often each was tried, and how each ended.

    Args:
        jobs: what to train.
        retries: how often a job that failed is tried again.
        report: called with every event.
    """

    def __init__(self, jobs: Sequence[Job], retries: int, report: EventReport | None) -> None:
        self.retries = retries
        self.tell: EventReport = report or (lambda event: None)
        self.outcome = Outcome([job.config.run_id for job in jobs if job.done])
        self._due: deque[tuple[float, Job]] = deque((0.0, job) for job in jobs if not job.done)
        self._attempts: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._due)

    @property
    def first(self) -> Job:
        """The job that is looked at next."""
        return self._due[0][1]

    def next(self) -> Job | None:
        """A job that is due; those that another launcher has finished meanwhile are done."""
        for _ in range(len(self._due)):
            due, job = self._due.popleft()
            if job.done:
                self.finish(job)
            elif due > time.monotonic():
                self._due.append((due, job))
            else:
                return job
        return None

    def finish(self, job: Job) -> None:
        """The run is complete."""
        self.outcome.done.append(job.config.run_id)
        self.tell(Event("done", job.config.run_id, job.config.steps))

    def busy(self, job: Job) -> None:
        """Another launcher has the run: look again later."""
        self._due.append((time.monotonic() + WAIT, job))
        self.tell(Event("busy", job.config.run_id))

    def fail(self, job: Job, reason: str) -> None:
        """An attempt ended: note why, and try again while retries are left."""
        run = job.config.run_id
        self._attempts[run] = self._attempts.get(run, 0) + 1
        job.folder.mkdir(parents=True, exist_ok=True)
        append_line(job.folder / files.FAILURES, {"attempt": self._attempts[run], "reason": reason})
        if self._attempts[run] <= self.retries:
            self._due.append((0.0, job))
            self.tell(Event("retry", run, reason=reason))
        else:
            self.outcome.failed[run] = reason
            self.tell(Event("failed", run, reason=reason))
