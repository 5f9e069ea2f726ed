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
from genie_dg.runs.folder import CHECKPOINT, LOCK
from genie_dg.runs.outcome import note_outcome, outcome_of

from ..jobs import OpenSets, run_job
from ..options import Job

MOST_STARTS = 3
"""Times in a row that a job may end without a new checkpoint, at its time limit or by a preemption."""
LOCK_PATIENCE = 90.0
"""Seconds to wait for a run's folder; a node that was lost may still hold it for some time."""


class NoProgress(RuntimeError):
    """A job was ended several times in a row before it came to a checkpoint."""


def checkpoint_stamp(folder: Path) -> tuple[int, int]:
    """Which checkpoint a run has; another one later means that it got further."""
    try:
        status = (folder / CHECKPOINT).stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


class RunTask:
    """One attempt at one run.

    Args:
        job: of the run.
        starts: how often in a row it was started without coming to a new checkpoint.
    """

    def __init__(self, job: Job, starts: int = 0) -> None:
        self.job, self.starts = job, starts
        self.stamp = 0, 0

    def __call__(self) -> None:
        """Train; what ends the attempt is noted in the run's folder."""
        import submitit

        self.stamp = checkpoint_stamp(self.job.folder)
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", FileWarning)
        try:
            self._train(submitit.JobEnvironment().job_id)
        except Exception as error:  # it is noted; the launcher decides what follows
            print(f"genie-dg: {type(error).__name__}: {error}", file=sys.stderr, flush=True)

    def _train(self, cluster_job: str) -> None:
        opened, until = OpenSets(), time.monotonic() + LOCK_PATIENCE
        while True:
            try:
                with beating(self.job.folder / LOCK):
                    run_job(self.job, opened, cluster_job=cluster_job)
                return
            except Busy as error:
                if time.monotonic() > until:
                    note_outcome(self.job.folder, outcome_of(error, cluster_job))
                    raise
                time.sleep(1)

    def checkpoint(self) -> Any:
        """What the job does when it starts again; refused where it would get no further than now."""
        import submitit

        starts = 0 if checkpoint_stamp(self.job.folder) != self.stamp else self.starts + 1
        if starts >= MOST_STARTS:
            raise NoProgress(
                f"Its job was ended {starts} times in a row without a new checkpoint; give more --time, or a "
                "smaller checkpoint_every."
            )
        return submitit.helpers.DelayedSubmission(RunTask(self.job, starts))
