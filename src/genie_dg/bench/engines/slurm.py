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

from genie_dg.files import Busy, lock
from genie_dg.runs.folder import alone
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
    usual_minutes,
)
from ._slurm_task import RunTask, checkpoint_stamp
from .engine import ClusterError, Engine, EngineOptions, Tell, Update, with_whole_paths

_COMMANDS = ("sbatch", "srun", "squeue", "sinfo", "scontrol", "scancel")
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
    cpus, gpus, partition = flags.get("cpus", 0), flags.get("gpus", 0), flags.get("partition", "")
    for name, value in (("cpus", cpus), ("gpus", gpus)):
        if not float(value).is_integer():
            raise ClusterError(f"got --{name} {value:g}; Slurm gives whole ones, so expected a whole number.")
    if options.device.startswith("cuda") and not gpus:
        raise ClusterError(f"got device={options.device!r} with gpus=0; give --gpus 1.")
    more = more_options(flags.get("slurm", ()))
    more |= {"partition": partition} if partition else {}
    more |= {"gpus-per-node": str(int(gpus))} if gpus else {}
    minutes = minutes_of(flags["time"]) if "time" in flags else usual_minutes(partition)
    return Resources(minutes, int(cpus), flags.get("array_parallelism", 0), more)


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

    def remove_pickles(self) -> None:
        """Of a job that has ended; its log stays."""
        for name in (f"{self.id}_submitted.pkl", f"{self.id}_0_result.pkl"):
            (self.files / name).unlink(missing_ok=True)

    def outcome(self, state: str, minutes: int) -> Outcome:
        """Why a job ended that has noted nothing itself.

        Args:
            state: in which Slurm saw it last, or nothing.
            minutes: of its time limit.
        """
        log = f"its log is {self.log}" if self.log.exists() else (
            f"it left no log: {self.job.folder.parent} must be there on the nodes, too"
        )  # fmt: skip
        reasons = {
            "CANCELLED": "was cancelled; start the same command again to submit it again",
            "OUT_OF_MEMORY": "ran out of memory; ask for more, such as --slurm mem=16G",
            "TIMEOUT": f"reached its time limit ({minutes} minutes) without a new checkpoint; give more "
            "--time, or a smaller checkpoint_every",
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
        self._out = Path(with_whole_paths(jobs[0]).options.out)
        self._size = len(jobs)

    @property
    def room(self) -> int:
        return 0 if time.monotonic() < self._rest_until else sys.maxsize

    def submit(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """Find the jobs that are in the queue already, and submit the others; one launcher at a time."""
        device = self.options.device or ("cuda" if "gpus-per-node" in self._asked.options else "cpu")
        ready = [with_whole_paths(job).changed(device=device) for job in jobs]
        book = place_of(self._out, self.options.name)
        with lock(book.with_suffix(".lock"), f"submits {self.options.name}", wait=-1):
            try:
                queued = self._find([job.config.run_id for job in ready])
            except ClusterError as error:
                self._complain(error)
                return jobs
            fresh, held = list[Job](), list[Job]()
            for job in ready:
                if job.config.run_id in queued:
                    self._watch(job, queued[job.config.run_id])
                else:
                    (held if _is_held(job) else fresh).append(job)
            return [*held, *self._submit_all(fresh)]

    def _find(self, runs: Sequence[str]) -> dict[str, Submission]:
        """Those of some runs that are queued or running, each with its submission."""
        wanted = set(runs)
        known = [one for one in read_submissions(self._out, self.options.name) if wanted & set(one.runs)]
        states = queued_jobs([one.name for one in known])
        self._queue |= states
        queued: dict[str, Submission] = {}
        for one in known:
            there = {run: states.get((one.name, k)) for k, run in enumerate(one.runs) if run in wanted}
            alive = {run: state for run, state in there.items() if state is not None and not state.over}
            if alive and not one.job:  # its launcher was killed before it could write the id down
                one = note_made(self._out, self.options.name, one, next(iter(alive.values())).job)
            queued |= dict.fromkeys(alive, one)
        if queued:
            ids = " ".join(dict.fromkeys(one.job for one in queued.values()))
            self.options.say(f"{_runs(len(queued))} already in the queue, in Slurm job {ids}; {_hints(ids)}.")
        return queued

    def _submit_all(self, jobs: list[Job]) -> list[Job]:
        """Submit arrays as large as the cluster takes; returns what it does not take now."""
        while jobs:
            size = min(self._size, len(jobs))
            try:
                self._submit(jobs[:size])
                jobs = jobs[size:]
            except SubmissionRefused as error:
                if size > 1 and error.too_many:
                    self._size = size // 2
                    continue
                if not self._submitted:
                    raise
                self._complain(error)
                self._rest_until = time.monotonic() + _SLOWEST
                return jobs
        return []

    def _submit(self, jobs: Sequence[Job]) -> None:
        name = self.options.name
        submission = new_submission(name, [job.config.run_id for job in jobs])
        note_planned(self._out, name, submission)
        asked = replace(self._asked, cpus=self._asked.cpus or max(job.config.threads for job in jobs))
        id_ = submit(submission.name, self._files(submission), [RunTask(job) for job in jobs], asked)
        submission = note_made(self._out, name, submission, id_)
        for job in jobs:
            self._watch(job, submission)
        self.options.say(f"{_runs(len(jobs))} submitted as Slurm job {id_}; {_hints(id_)}.")

    def _files(self, submission: Submission) -> Path:
        return place_of(self._out, self.options.name).with_suffix("") / submission.name

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
                one.remove_pickles()
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
        return Update(one.job.config.run_id, RunState.failed, outcome=one.outcome(state, self._asked.minutes))

    def cancel(self) -> None:
        """The jobs stay where they are."""
        ids = " ".join(dict.fromkeys(one.submission.job for one in self._submitted.values()))
        if ids:
            self.options.say(
                f"Stopped watching; {_runs(len(self._submitted))} still in the queue: scancel {ids} cancels "
                "them, and the same command watches them again."
            )


def _is_held(job: Job) -> bool:
    """Whether another process trains the run."""
    if not job.folder.exists():
        return False
    try:
        with alone(job.folder):
            return False
    except Busy:
        return True


def _runs(count: int) -> str:
    return f"{count} run{'s are' if count > 1 else ' is'}"


def _hints(ids: str) -> str:
    return f"squeue --job {ids.replace(' ', ',')} shows them, scancel {ids} cancels them"
