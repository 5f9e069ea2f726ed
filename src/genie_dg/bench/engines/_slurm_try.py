"""One submission of a run that a launcher watches: its job id, its files, and why its job ended."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from genie_dg.runs.submissions import Submission

from ..options import Job
from ._slurm_cluster import Place


@dataclass
class Try:
    """One submission of a run.

    Args:
        job: the run.
        submission: with which it was submitted.
        files: the folder of what submitit writes for that.
        mark: which checkpoint the run had then.
        started: whether its job was seen at work.
        ended: when its job was first seen to be over, or to be gone; 0 while it is not.
    """

    job: Job
    submission: Submission
    files: Path
    mark: tuple[int, int]
    started: bool = False
    ended: float = 0.0

    @property
    def run(self) -> str:
        return self.job.config.run_id

    @property
    def place(self) -> Place:
        return self.submission.name, self.submission.runs.index(self.run)

    @property
    def id(self) -> str:
        return self.submission.job_of(self.run)

    @property
    def log(self) -> Path:
        return self.files / f"{self.id}_0_log.out"

    def link_log(self) -> None:
        """Show the log in the run's folder."""
        folder = self.job.folder
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            (folder / f"slurm-{self.id}.log").symlink_to(os.path.relpath(self.log, folder))

    def remove_pickles(self) -> None:
        """Of a job that has ended; its log stays."""
        for name in (f"{self.id}_submitted.pkl", f"{self.id}_0_result.pkl"):
            with suppress(OSError):
                os.unlink(self.files / name)

    def why(self, state: str, minutes: int) -> str:
        """Why a job ended that noted no reason itself.

        Args:
            state: in which Slurm saw it last, or nothing.
            minutes: of its time limit.
        """
        job = f"The Slurm job {self.id}"
        if state == "CANCELLED":
            return f"{job} was cancelled; start the same command again to submit it again."
        if state == "OUT_OF_MEMORY":
            return f"{job} ran out of memory; ask for more, such as --slurm mem=16G."
        if state == "TIMEOUT":
            limit = f"{job} reached its time limit ({minutes} minutes) without a new checkpoint"
            return f"{limit}; give more --time, or a smaller checkpoint_every."
        ended = f"{job} ended {f'as {state}' if state else 'without a trace'}"
        if self.log.exists():
            return f"{ended}; its log is {self.log}."
        return f"{ended} and left no log; {self.job.folder.parent} must be there on the nodes, too."
