"""What a Slurm job does: train one run, in its own folder of runs, which all nodes share.

submitit calls a `RunTask` in the job. When Slurm warns that the time is up, or that the job is preempted,
submitit asks for its `checkpoint` and puts the job back into the queue. Nothing has to be saved then: a run
always goes on from its last checkpoint, so a job that was not warned before it was killed loses no more.
"""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path
from typing import Any

from genie_dg.files import Busy, FileWarning, beating
from genie_dg.runs import folder as files

from ..jobs import OpenSets, run_job
from ..options import Job, job_from
from .queue import note_failure

LIMITS = 3
"""Times in a row that a job may reach its time limit without a new checkpoint."""
HELD = 90.0
"""Seconds to wait for a run's folder; a node that was lost may still hold it for some time."""


def mark(folder: Path) -> tuple[int, int]:
    """Which checkpoint a run has; another mark later means that it got further."""
    try:
        status = (folder / files.CHECKPOINT).stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


class RunTask:
    """One attempt at one run.

    Args:
        job: of the run, as `Job.to_json` writes it.
        attempt: which one it is.
        signal_after: seconds after which a warning is one of the time limit, and not of a preemption.
        limits: how often in a row the time limit was reached without a new checkpoint.
    """

    def __init__(self, job: str, attempt: int, signal_after: float, limits: int = 0) -> None:
        self.job, self.attempt, self.signal_after, self.limits = job, attempt, signal_after, limits
        self.began, self.mark = 0.0, (0, 0)

    def __call__(self) -> str:
        """Train; returns why it failed, or nothing. The reason is also noted in the run's folder."""
        import submitit

        job = job_from(self.job)
        self.began, self.mark = time.monotonic(), mark(job.folder)
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", FileWarning)
        reason = self._train(job)
        if reason:
            print(f"genie-dg: {reason}", file=sys.stderr, flush=True)
            note_failure(job, self.attempt, reason, {"job": submitit.JobEnvironment().job_id})
        return reason

    def _train(self, job: Job) -> str:
        from submitit.core.utils import UncompletedJobError

        opened = OpenSets()
        while True:
            try:
                with beating(job.folder / files.LOCK):
                    run_job(job, opened)
            except Busy as error:
                if time.monotonic() - self.began < HELD:
                    time.sleep(1)
                    continue
                return f"{type(error).__name__}: {error}"
            except UncompletedJobError:
                return (
                    f"It reached the time limit of its job {LIMITS} times without a new checkpoint; give more "
                    "--time, or a smaller checkpoint_every."
                )
            except Exception as error:  # whatever it is, it becomes a line of the sweep's report
                return f"{type(error).__name__}: {error}"
            return ""

    def checkpoint(self) -> Any:
        """What the job does when it starts again; nothing when it would get no further than now."""
        import submitit

        moved = mark(job_from(self.job).folder) != self.mark
        timed_out = time.monotonic() - self.began >= self.signal_after
        limits = 0 if moved else self.limits + timed_out
        if limits >= LIMITS:
            return None
        return submitit.helpers.DelayedSubmission(RunTask(self.job, self.attempt, self.signal_after, limits))
