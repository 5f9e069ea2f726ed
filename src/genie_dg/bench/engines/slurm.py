"""The engine for a Slurm cluster: job arrays over the runs that are missing, through submitit.

The launcher only submits and watches. Jobs train in the folder of runs, which all nodes share, so they need no
launcher: when it is stopped they go on, and the same command later finds the jobs that are still queued or
running and submits none of their runs twice. A run that is preempted, or reaches its time limit, goes on from
its last checkpoint, in the same job when Slurm puts it back into the queue and else in a new one.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from genie_dg.files import lock
from genie_dg.runs.outcome import Ending, Outcome
from genie_dg.runs.submissions import (
    Submission,
    new_submission,
    note_made,
    note_planned,
    place_of,
    read_submissions,
)

from ..options import Job
from ..status import RunState, seconds_by_step
from ._slurm_cluster import (
    JobKey,
    QueuedJob,
    Resources,
    SubmissionRefused,
    minutes_of,
    more_options,
    queued_jobs,
    submit,
)
from ._slurm_task import RunTask, checkpoint_stamp
from .engine import ClusterError, Engine, EngineOptions, Tell, Update, with_whole_paths

_COMMANDS = ("sbatch", "srun", "squeue", "scontrol", "scancel")
_MINUTES = 60
"""The time limit of a job unless another is asked for."""
LOOK = 2.0
"""Seconds between two looks at the folders of runs."""
_SLOWEST = 60.0
"""Seconds between two looks at the queue at most; they are more frequent after a change."""
SETTLE = 10.0
"""Seconds between the end of a job and the belief that its files say all that they will say."""


def slurm_resources(options: EngineOptions) -> Resources:
    """What each run asks Slurm for; what sbatch knows better is left to it."""
    if importlib.util.find_spec("submitit") is None:
        raise ClusterError(
            "--engine slurm needs submitit, not installed here; "
            'run pip install "genie-dg[slurm]" and try again.'
        )
    missing = [name for name in _COMMANDS if shutil.which(name) is None]
    if missing:
        raise ClusterError(
            f"--engine slurm needs {' and '.join(missing)}, not found here; start it on a login node of a "
            "Slurm cluster, or leave --engine out to run on this machine."
        )
    flags = options.flags
    cpus, gpus = flags.get("cpus", 0), flags.get("gpus", 0)
    if not (float(cpus).is_integer() and float(gpus).is_integer()):
        raise ClusterError(f"got --cpus {cpus:g} and --gpus {gpus:g}; expected whole numbers, as Slurm does.")
    if options.device.startswith("cuda") and not gpus:
        raise ClusterError(f"got device={options.device!r} with gpus=0; give --gpus 1.")
    more = more_options(flags.get("slurm", ()))
    more |= {"partition": flags["partition"]} if "partition" in flags else {}
    more |= {"gpus-per-node": str(int(gpus))} if gpus else {}
    minutes = minutes_of(flags["time"]) if "time" in flags else _MINUTES
    return Resources(minutes, int(cpus), flags.get("array-parallelism", 0), more)


@dataclass
class _Submitted:
    """A run that was submitted.

    Args:
        job: the run.
        submission: with which it was submitted.
        files: the folder of what submitit writes for that.
        stamp: of the checkpoint that the run had then.
        ended: when its job was first seen to be over, or to be gone; 0 while it is not.
    """

    job: Job
    submission: Submission
    files: Path
    stamp: tuple[int, int]
    ended: float = 0.0

    @property
    def key(self) -> JobKey:
        return self.submission.name, self.submission.runs.index(self.job.config.run_id)

    @property
    def id(self) -> str:
        return self.submission.job_of(self.job.config.run_id)

    @property
    def log(self) -> Path:
        return self.files / f"{self.id}_0_log.out"

    def link_log(self) -> None:
        """Show the log in the run's folder."""
        folder = self.job.folder
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            (folder / f"slurm-{self.id}.log").symlink_to(os.path.relpath(self.log, folder))

    def outcome(self, state: str) -> Outcome:
        """Why a job ended that has noted nothing itself; ``state`` is the last that Slurm said, or empty."""
        log = f"its log is {self.log}"
        if not self.log.exists():
            log = f"it left no log: {self.job.folder.parent} must be there on the nodes, too"
        reasons = {
            "CANCELLED": "was cancelled; start the same command again to submit it again",
            "TIMEOUT": "reached its time limit without a new checkpoint; give more --time, or a smaller "
            "checkpoint_every",
            "": f"ended without a trace; {log}",
        }
        reason = reasons.get(state, f"ended as {state}; {log}")
        ending = Ending.stopped if state == "CANCELLED" else Ending.failed
        return Outcome(ending, f"The Slurm job {self.id} {reason}.", job=self.id)


class SlurmEngine(Engine):
    """Trains in jobs of Slurm, which go on without the launcher."""

    def __init__(self, options: EngineOptions) -> None:
        super().__init__(options)
        self._asked = slurm_resources(options)
        self._submitted: dict[str, _Submitted] = {}
        self._queue: dict[JobKey, QueuedJob] = {}
        self._looked = self._changed = time.monotonic()
        self._silent = False
        self._rest_until = 0.0

    def start(self, jobs: Sequence[Job]) -> None:
        self._out, self._name = Path(with_whole_paths(jobs[0]).options.out), jobs[0].options.group or "sweep"
        self._size = len(jobs)

    @property
    def room(self) -> int:
        return 0 if time.monotonic() < self._rest_until else sys.maxsize

    def submit(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """Find the jobs that are in the queue already, and submit the others; one launcher at a time."""
        device = self.options.device or ("cuda" if "gpus-per-node" in self._asked.options else "cpu")
        left = {job.config.run_id: with_whole_paths(job).changed(device=device) for job in jobs}
        book = place_of(self._out, self._name)
        try:
            with lock(book.with_suffix(".lock"), f"submits {self._name}", wait=-1):
                for run, submission in self._find(list(left)).items():
                    self._watch(left.pop(run), submission)
                while left:
                    self._submit(list(left.values())[: self._size])
                    left = {run: job for run, job in left.items() if run not in self._submitted}
        except ClusterError as error:
            if not self._submitted:
                raise
            self._complain(error)
            self._rest_until = time.monotonic() + _SLOWEST
        return list(left.values())

    def _find(self, runs: Sequence[str]) -> dict[str, Submission]:
        """Those of some runs that are queued or running, each with its submission."""
        wanted = set(runs)
        known = [one for one in read_submissions(self._out, self._name) if wanted & set(one.runs)]
        states = queued_jobs([one.name for one in known])
        self._queue |= states
        queued: dict[str, Submission] = {}
        for one in known:
            there = {run: states.get((one.name, k)) for k, run in enumerate(one.runs) if run in wanted}
            alive = {run: state for run, state in there.items() if state is not None and not state.over}
            if alive and not one.job:  # its launcher was killed before it could write the id down
                one = note_made(self._out, self._name, one, next(iter(alive.values())).job)
            queued |= dict.fromkeys(alive, one)
        if queued:
            self._say("Already in the queue", list(queued.values()))
        return queued

    def _submit(self, jobs: Sequence[Job]) -> None:
        """Submit some jobs as an array; a smaller one where the cluster does not take so many."""
        submission = new_submission(self._name, [job.config.run_id for job in jobs])
        note_planned(self._out, self._name, submission)
        asked = replace(self._asked, cpus=self._asked.cpus or max(job.config.threads for job in jobs))
        try:
            id_ = submit(submission.name, self._files(submission), [RunTask(job) for job in jobs], asked)
        except SubmissionRefused:
            if len(jobs) == 1:
                raise
            self._size = len(jobs) // 2
            return
        submission = note_made(self._out, self._name, submission, id_)
        for job in jobs:
            self._watch(job, submission)
        self._say("Submitted", [submission] * len(jobs))

    def _say(self, what: str, submissions: Sequence[Submission], more: str = "") -> None:
        """A sentence about runs in the queue, of which each has a submission."""
        ids = list(dict.fromkeys(one.job for one in submissions))
        runs = f"{len(submissions)} run{'s' * (len(submissions) > 1)}"
        hint = f"see squeue --job {','.join(ids)}, cancel by scancel {' '.join(ids)}"
        self.options.say(f"{what}: {runs} in Slurm job {' '.join(ids)} ({hint}){more}.")

    def _files(self, submission: Submission) -> Path:
        return place_of(self._out, self._name).with_suffix("") / submission.name

    def _watch(self, job: Job, submission: Submission) -> None:
        one = _Submitted(job, submission, self._files(submission), checkpoint_stamp(job.folder))
        one.link_log()
        self._submitted[job.config.run_id] = one
        self._changed = time.monotonic()

    def poll(self, tell: Tell) -> None:
        time.sleep(LOOK)
        self._look_at_queue()
        for run, one in list(self._submitted.items()):
            update = self._update(one)
            if update is None:
                continue
            if update.state is not RunState.running:
                del self._submitted[run]
                self._changed = time.monotonic()
            tell(update)

    def _look_at_queue(self) -> None:
        """Ask Slurm for the states of all jobs, unless it was asked a moment ago."""
        now = time.monotonic()
        if now - self._looked < min(_SLOWEST, (now - self._changed) / 4):
            return
        try:
            self._queue = queued_jobs(list({one.submission.name for one in self._submitted.values()}))
            self._silent = False
        except ClusterError as error:
            self._complain(error)
        self._looked = time.monotonic()

    def _complain(self, error: ClusterError) -> None:
        """Slurm does not answer for the moment, which is said once."""
        if not self._silent:
            self.options.say(f"{str(error).partition(';')[0]}; waiting, and jobs that were submitted go on.")
        self._silent = True

    def _update(self, one: _Submitted) -> Update | None:
        run, state = one.job.config.run_id, self._queue.get(one.key)
        if one.job.done:
            return Update(run, RunState.done)
        if self._silent:
            return None
        if state is not None and not state.over:
            one.ended = 0.0
            if state.state != "RUNNING":
                return None
            steps = max(seconds_by_step(one.job.folder), default=-1) + 1
            return Update(run, RunState.running, min(steps, one.job.config.steps))
        if not one.ended:
            one.ended = self._changed = time.monotonic()
        if self._looked - one.ended < SETTLE:
            return None
        os.listdir(one.job.folder)  # lets a network file system look again for what it said is not there
        return self._ended(one, "" if state is None else state.state)

    def _ended(self, one: _Submitted, state: str) -> Update:
        """A job is over: whether its run is to blame, unless it has noted that itself."""
        further = checkpoint_stamp(one.job.folder) != one.stamp
        if state == "PREEMPTED" or (state == "TIMEOUT" and further):
            reason = f"Slurm ended the job {one.id} ({state.lower()}); it goes on in another."
            outcome = Outcome(Ending.stopped, reason, job=one.id)
            return Update(one.job.config.run_id, RunState.stopped, outcome=outcome)
        return Update(one.job.config.run_id, RunState.failed, outcome=one.outcome(state))

    def cancel(self) -> None:
        """The jobs stay where they are."""
        if self._submitted:
            submissions = [one.submission for one in self._submitted.values()]
            self._say("Still in the queue", submissions, "; the same command watches them again")
