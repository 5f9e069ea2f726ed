"""The engine for a Slurm cluster: job arrays over the runs that are missing, through submitit.

The launcher only submits and watches. Jobs train in the folder of runs, which all nodes share, so they need no
launcher: when it is stopped they go on, and the same command later finds the jobs that are still queued or
running and submits none of their runs twice. A run that is preempted, or reaches its time limit, goes on from
its last checkpoint, in the same job when Slurm puts it back into the queue and else in a new one. A run that
fails is tried again and then reported with its reason, as with the local engine.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from genie_dg.check import whole_number
from genie_dg.files import Busy, lock, read_lines
from genie_dg.runs import folder as files
from genie_dg.runs.read import seconds
from genie_dg.runs.submissions import (
    Submission,
    new_submission,
    note_made,
    note_planned,
    place_of,
    read_submissions,
)

from ..options import Job
from ._paths import paths_of, with_whole_paths
from ._slurm_cluster import (
    JobState,
    Place,
    Refused,
    array_limit,
    check_installed,
    check_visible,
    nodes,
    settle_resources,
    states_of,
    submit,
)
from ._slurm_task import RunTask, mark
from ._slurm_try import Try
from .queue import ClusterError, Event, EventReport, Outcome, Queue
from .slurm_options import Resources, minutes_of, more_options

POLL = 2.0
"""Seconds between two looks at the folders of runs."""
SLOWEST = 60.0
"""Seconds between two looks at the queue at most; they are more frequent after a change."""
SETTLE = 10.0
"""Seconds between the end of a job and the belief that its files say all that they will say."""


def resources(
    partition: str = "",
    time_limit: str = "",
    cpus: float | None = None,
    gpus: float = 0,
    array_parallelism: int = 0,
    more: Sequence[str] = (),
) -> Resources:
    """What each run asks Slurm for, checked against the cluster; nothing is submitted.

    Args:
        partition: where; empty for the cluster's default.
        time_limit: of a job, as Slurm writes it; empty for what is usual in the partition.
        cpus: of a run; 0 or none for as many as it has threads.
        gpus: of a run.
        array_parallelism: runs of one array at a time; 0 for as many as the cluster takes.
        more: other options of sbatch, ``KEY=VALUE``.
    """
    check_installed()
    for name, value in (("cpus", cpus or 0), ("gpus", gpus)):
        if not float(value).is_integer():
            raise ClusterError(f"got --{name} {value:g}; Slurm gives whole ones, so expected a whole number.")
    return settle_resources(
        Resources(
            partition,
            minutes_of(time_limit) if time_limit else 0,
            int(cpus or 0),
            int(gpus),
            whole_number("array_parallelism", array_parallelism, 0, error=ClusterError),
            more_options(more),
        )
    )


def launch_slurm(
    jobs: Sequence[Job],
    name: str,
    asked: Resources,
    *,
    retries: int = 1,
    device: str = "",
    report: EventReport | None = None,
    say: Callable[[str], None] = print,
    poll: float = POLL,
) -> Outcome:
    """Submit all jobs that are not done and not in the queue; returns when each is done or has failed for good.

    Args:
        jobs: what to train; relative paths in them are taken from this process's folder.
        name: of the sweep; its submissions are kept beside its list.
        asked: of Slurm for each run, from `resources`.
        retries: how often a job that failed is tried again.
        device: for all runs; by default ``cuda`` where a run has a GPU, or the CPU.
        report: called with every event.
        say: called with sentences for people: what was submitted, and how it is cancelled.
        poll: seconds between two looks at the folders of runs.
    """
    whole_number("retries", retries, 0, error=ClusterError)
    if device.startswith("cuda") and not asked.gpus:
        raise ClusterError(f"got device={device!r} with gpus=0; give --gpus 1.")
    if all(job.done for job in jobs):
        return Outcome([job.config.run_id for job in jobs])
    where = device or ("cuda" if asked.gpus else "cpu")
    ready = [with_whole_paths(job).changed(device=where) for job in jobs]
    named = dict.fromkeys(path for job in ready for path in paths_of(job))
    check_visible([*named, Path(sys.executable)], nodes())
    return _Launch(Queue(ready, retries, report), name, asked, say, poll).run()


class _Launch:
    """The state of one launch; `run` is its loop."""

    def __init__(
        self, queue: Queue, name: str, asked: Resources, say: Callable[[str], None], poll: float
    ) -> None:
        self.queue, self.name, self.asked, self.say, self.poll = queue, name, asked, say, poll
        self.out = Path(queue.first.options.out)
        self.logs = place_of(self.out, name).with_suffix("")
        self.limit = array_limit()
        self.tries: dict[str, Try] = {}
        self.states: dict[Place, JobState] = {}
        self.looked = self.changed = time.monotonic()
        self.silent = False
        self.rest_until = 0.0
        self.held: set[str] = set()
        """Names of submissions of which it was said that Slurm holds a job."""

    def run(self) -> Outcome:
        try:
            while len(self.queue) or self.tries:
                self._submit_due()
                time.sleep(self.poll)
                self._look_at_queue()
                for one in list(self.tries.values()):
                    self._look_at(one)
        except KeyboardInterrupt:
            self._leave()
            raise
        return self.queue.outcome

    def _submit_due(self) -> None:
        """Find the jobs that are in the queue already, and submit the others; one launcher at a time."""
        due = list(iter(self.queue.next, None)) if time.monotonic() >= self.rest_until else []
        if not due:
            return
        with lock(place_of(self.out, self.name).with_suffix(".lock"), f"submits {self.name}", wait=-1):
            try:
                found = self._find([job.config.run_id for job in due])
            except ClusterError as error:
                self._complain(error)
                for job in due:
                    self.queue.busy(job)
                return
            fresh = []
            for job in due:
                if job.config.run_id in found:
                    self._watch(job, found[job.config.run_id])
                elif _held(job):
                    self.queue.busy(job)
                else:
                    fresh.append(job)
            self._submit_all(fresh)

    def _find(self, runs: Sequence[str]) -> dict[str, Submission]:
        """Those of some runs that are queued or running, each with its submission."""
        wanted = set(runs)
        known = [one for one in read_submissions(self.out, self.name) if wanted & set(one.runs)]
        states = states_of([one.name for one in known])
        self.states |= states
        found: dict[str, Submission] = {}
        for one in known:
            there = {run: states.get((one.name, k)) for k, run in enumerate(one.runs) if run in wanted}
            alive = {run: state for run, state in there.items() if state is not None and not state.over}
            if alive and not one.job:  # its launcher was killed before it could write the id down
                one = note_made(self.out, self.name, one, next(iter(alive.values())).job)
            found |= dict.fromkeys(alive, one)
        if found:
            ids = " ".join(dict.fromkeys(one.job for one in found.values()))
            self.say(f"{_runs(len(found))} already in the queue, in Slurm job {ids}; {_hints(ids)}.")
        return found

    def _submit_all(self, jobs: list[Job]) -> None:
        """In arrays as large as the cluster takes; what it does not take now is offered again later."""
        size = self.limit
        while jobs:
            try:
                self._submit(jobs[:size])
                jobs = jobs[size:]
            except Refused as error:
                size = min(size, len(jobs)) // 2
                if size and error.too_many:
                    continue
                if not self.tries:
                    raise
                self._complain(error)
                self.rest_until = time.monotonic() + SLOWEST
                for job in jobs:
                    self.queue.busy(job)
                return

    def _submit(self, jobs: Sequence[Job]) -> None:
        submission = new_submission(self.name, [job.config.run_id for job in jobs])
        note_planned(self.out, self.name, submission)
        after = self.asked.signal_after
        tasks = [RunTask(job.to_json(), self.queue.attempt(job), after) for job in jobs]
        cpus = self.asked.cpus or max(job.config.threads for job in jobs)
        id_ = submit(submission.name, self.logs / submission.name, tasks, self.asked.with_cpus(cpus))
        submission = note_made(self.out, self.name, submission, id_)
        for job in jobs:
            self._watch(job, submission)
        self.say(f"{_runs(len(jobs))} submitted as Slurm job {id_}; {_hints(id_)}.")

    def _watch(self, job: Job, submission: Submission) -> None:
        one = Try(job, submission, self.logs / submission.name, mark(job.folder))
        one.link_log()
        self.tries[one.run] = one
        self.changed = time.monotonic()

    def _look_at_queue(self) -> None:
        """Ask Slurm for the states of all jobs, unless it was asked a moment ago."""
        now = time.monotonic()
        if now - self.looked < min(SLOWEST, (now - self.changed) / 4):
            return
        try:
            self.states = states_of(list({one.submission.name for one in self.tries.values()}))
        except ClusterError as error:
            self._complain(error)
        else:
            self.silent = False
        self.looked = time.monotonic()

    def _complain(self, error: ClusterError) -> None:
        """Slurm does not answer for the moment, which is said once."""
        if not self.silent:
            self.say(f"{str(error).partition(';')[0]}; waiting, and jobs that were submitted go on.")
        self.silent = True

    def _look_at(self, one: Try) -> None:
        state = self.states.get(one.place)
        if one.job.done:
            self._forget(one)
            self.queue.finish(one.job)
        elif self.silent:
            return
        elif state is not None and not state.over:
            one.ended = 0.0
            if state.state == "RUNNING":
                self._tell_progress(one)
            elif "held" in state.reason.lower() and one.submission.name not in self.held:
                self.held.add(one.submission.name)
                self.say(f"The Slurm job {one.id} is held ({state.reason}); free it with scontrol release.")
        elif not one.ended:
            one.ended = self.changed = time.monotonic()
        elif self.looked - one.ended >= SETTLE:
            os.listdir(one.job.folder)  # lets a network file system look again for what it said is not there
            if not one.job.done:
                self._forget(one)
                self._end(one, state)

    def _tell_progress(self, one: Try) -> None:
        if not one.started:
            one.started, self.changed = True, time.monotonic()
            self.queue.tell(Event("started", one.run))
        steps = max(seconds(str(one.job.folder)), default=-1) + 1
        if steps:
            self.queue.tell(Event("progress", one.run, min(steps, one.job.config.steps)))

    def _forget(self, one: Try) -> None:
        """A job has ended."""
        del self.tries[one.run]
        self.changed = time.monotonic()
        one.remove_pickles()

    def _end(self, one: Try, state: JobState | None) -> None:
        """A job ended and its run is not complete: why, and whether it is tried again."""
        noted = [line for line in read_lines(one.job.folder / files.FAILURES)[0] if line.get("job") == one.id]
        kind = "" if state is None else state.state
        further = mark(one.job.folder) != one.mark
        if noted:
            self.queue.fail(one.job, str(noted[-1].get("reason", "no reason given")), noted=True)
        elif kind == "PREEMPTED" or (kind == "TIMEOUT" and further):
            self.queue.again(one.job, f"Slurm ended the job {one.id} ({kind.lower()}); it goes on in another.")
        else:
            more: Mapping[str, str] = {"job": one.id}
            self.queue.fail(one.job, one.why(kind, self.asked.minutes), final=kind == "CANCELLED", more=more)

    def _leave(self) -> None:
        """Ctrl-C: the jobs stay where they are."""
        ids = " ".join(dict.fromkeys(one.submission.job for one in self.tries.values()))
        if ids:
            self.say(
                f"Stopped watching; {_runs(len(self.tries))} still in the queue: scancel {ids} cancels them, "
                "and the same command watches them again."
            )


def _held(job: Job) -> bool:
    """Whether another process trains the run."""
    if not job.folder.exists():
        return False
    try:
        with files.alone(job.folder):
            return False
    except Busy:
        return True


def _runs(count: int) -> str:
    return f"{count} run{'s are' if count > 1 else ' is'}"


def _hints(ids: str) -> str:
    return f"squeue --job {ids.replace(' ', ',')} shows them, scancel {ids} cancels them"
