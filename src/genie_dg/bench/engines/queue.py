"""What the engines share: events, the outcome, the queue of jobs with its retries, the error of a cluster."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from genie_dg.check import InputError
from genie_dg.files import append_line
from genie_dg.runs import folder as files

from ..options import Job

WAIT = 1.0
"""Seconds before a run that another launcher holds is looked at again."""


class ClusterError(InputError):
    """The cluster cannot be used as asked; the message says what to do."""


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

    def attempt(self, job: Job) -> int:
        """Which attempt of a run comes next, from 1."""
        return self._attempts.get(job.config.run_id, 0) + 1

    def again(self, job: Job, reason: str) -> None:
        """An attempt was interrupted, which is not the run's fault: try again, whatever retries are left."""
        self._due.append((0.0, job))
        self.tell(Event("retry", job.config.run_id, reason=reason))

    def fail(
        self,
        job: Job,
        reason: str,
        *,
        noted: bool = False,
        final: bool = False,
        more: Mapping[str, str] | None = None,
    ) -> None:
        """An attempt ended: note why, and try again while retries are left.

        A run that diverged is not tried again, since it would diverge in the same step.

        Args:
            job: which.
            reason: why.
            noted: whether the process that failed has noted it already.
            final: whether no retry can help.
            more: what else is noted.
        """
        run, attempt = job.config.run_id, self.attempt(job)
        self._attempts[run] = attempt
        if not noted:
            note_failure(job, attempt, reason, more)
        if attempt <= self.retries and not final and not reason.startswith(files.DIVERGED):
            self.again(job, reason)
        else:
            self.outcome.failed[run] = reason
            self.tell(Event("failed", run, reason=reason))


def note_failure(job: Job, attempt: int, reason: str, more: Mapping[str, str] | None = None) -> None:
    """Write into a run's folder why an attempt ended."""
    job.folder.mkdir(parents=True, exist_ok=True)
    append_line(job.folder / files.FAILURES, {"attempt": attempt, "reason": reason, **(more or {})})
