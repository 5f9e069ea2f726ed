"""The launcher for a Ray cluster: one Ray task for each run, and every file comes home to the launcher.

The contract is that of the local launcher: a run whose worker is killed goes on from the last files that came
home, a run that fails is tried again and then reported with its reason, and a run's folder at home is locked
while this launcher has the run. Nodes need this package and Ray; data sets, caches and plugins are named by
paths that must exist on every node. Only the embedded sets need nothing.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from genie_dg.data.registry import SETS
from genie_dg.runs import folder as disk

from .jobs import Job
from .launch import WAIT, Event, Outcome, note_failure
from .ray_cluster import ClusterError, connection, slots_of
from .ray_home import TRAVELLING, Mailbox, StrangeFile, bring_home, clear_parts, files_at, train_away

AHEAD = 2
"""Runs that wait in Ray's own queue, so that a node is not idle until the launcher looks again."""

GRACE = 3.0
"""Seconds that interrupted runs have to clean up before they are killed."""


def launch_ray(
    jobs: Sequence[Job],
    *,
    address: str = "",
    retries: int = 1,
    cpus: float = 1,
    gpus: float = 0,
    device: str = "",
    report: Callable[[Event], None] | None = None,
    poll: float = 0.2,
) -> Outcome:
    """Train all jobs that are not done; returns when each is done or has failed for good.

    Args:
        jobs: what to train; relative paths in them are taken from this process's folder.
        address: of a running cluster: ``HOST:PORT``, ``auto`` or ``ray://HOST:PORT``; it is left running. By
            default a cluster on this machine's cores is started and stopped, or, where this process is
            connected to one already, that one is used.
        retries: how often a job that failed is tried again.
        cpus: that each run holds; torch uses max(1, ⌊cpus⌋) threads.
        gpus: that each run holds; a fraction lets runs share one. On a cluster that was named, runs wait until
            some node has what they ask for.
        device: for all runs; by default ``cuda`` where ``gpus`` is more than 0, or the CPU.
        report: called with every event.
        poll: seconds between two looks at what has come.
    """
    _check(jobs, retries, cpus, gpus, device)
    if all(job.done for job in jobs):
        return Outcome([job.config.run_id for job in jobs])
    threads = max(1, int(cpus))
    ready = [located(job).on(device or ("cuda" if gpus else "cpu"), threads) for job in jobs]
    with connection(address) as ray:
        if not address and slots_of(ray, cpus, gpus) == 0:
            raise ClusterError(
                f"A run asks for {cpus:g} CPUs and {gpus:g} GPUs, and this machine has not as many; "
                "ask for less, or name the address of a cluster that has them."
            )
        return _Launch(ray, ready, retries, cpus, gpus, report, poll).run()


def _check(jobs: Sequence[Job], retries: int, cpus: float, gpus: float, device: str) -> None:
    if retries < 0:
        raise ClusterError(f"retries={retries} came; it must be 0 or more.")
    for name, value in (("cpus", cpus), ("gpus", gpus)):
        if not (0 <= value <= 1 or (value > 1 and float(value).is_integer())):
            raise ClusterError(f"{name}={value} came; it must be a fraction from 0 to 1, or a whole number.")
    if cpus == gpus == 0:
        raise ClusterError("cpus=0 and gpus=0 came; a run must hold some of one, or all would run at once.")
    if device.startswith("cuda") and gpus == 0:
        raise ClusterError(f"device={device!r} came with gpus=0; give gpus=1, or a fraction to share one.")
    if any(job.watch for job in jobs):
        raise ClusterError("What a run is watched for does not come home from a cluster; leave watch off.")
    if any(job.tensorboard for job in jobs):
        raise ClusterError(
            "TensorBoard's files do not come home from a cluster; leave tensorboard off: the records hold the "
            "same numbers."
        )


def located(job: Job) -> Job:
    """The job with whole paths, since a worker's folder is not this process's."""

    def whole(path: str) -> str:
        return str(Path(path).absolute()) if path else ""

    data = whole(job.data) if job.data not in SETS and Path(job.data).exists() else job.data
    plugins = tuple(whole(file) for file in job.plugins)
    return replace(
        job, data=data, out=whole(job.out), root=whole(job.root), cache=whole(job.cache), plugins=plugins
    )


@dataclass
class _Try:
    """One try of a job, and the lock of its folder."""

    job: Job
    result: Any
    lock: ExitStack
    started: bool = False
    refused: str = ""


class _Launch:
    """The state of one launch; `run` is its loop."""

    def __init__(
        self,
        ray: Any,
        jobs: Sequence[Job],
        retries: int,
        cpus: float,
        gpus: float,
        report: Callable[[Event], None] | None,
        poll: float,
    ) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self.ray, self.retries, self.cpus, self.gpus, self.poll = ray, retries, cpus, gpus, poll
        self.tell = report or (lambda event: None)
        self.outcome = Outcome([job.config.run_id for job in jobs if job.done])
        self.pending: deque[tuple[float, Job]] = deque((0.0, job) for job in jobs if not job.done)
        self.attempts: dict[str, int] = {}
        self.tickets, self.told_to_wait = 0, False
        self.tries: dict[str, _Try] = {}
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        lasting = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1}  # lost news comes with the next
        self.mailbox = ray.remote(**lasting, scheduling_strategy=here)(Mailbox).remote()
        self.train = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=0)(train_away)

    def run(self) -> Outcome:
        try:
            while self.pending or self.tries:
                self._hand_out()
                ended = self._wait()
                self._fetch()  # a task that has ended has delivered, and its files come before its fate
                for ticket in ended:
                    self._end(ticket)
        except KeyboardInterrupt:
            self._fetch()
            raise
        finally:
            self._stop()
        return self.outcome

    def _hand_out(self) -> None:
        """Give Ray the jobs that are due, a few more than it has room for."""
        if not self.pending:
            return
        slots = slots_of(self.ray, self.cpus, self.gpus)
        if slots == 0 and not self.told_to_wait:
            self.told_to_wait = True
            ask = f"{self.cpus:g} CPUs and {self.gpus:g} GPUs"
            run = self.pending[0][1].config.run_id
            self.tell(Event("busy", run, reason=f"No node of the cluster has {ask} now; waiting for one."))
        for _ in range(len(self.pending)):
            if len(self.tries) >= slots + AHEAD:
                return
            due, job = self.pending.popleft()
            if job.done:  # by another launcher, meanwhile
                self._finish(job)
            elif due > time.monotonic():
                self.pending.append((due, job))
            else:
                self._give(job)

    def _give(self, job: Job) -> None:
        """Lock the folder at home, and send what it holds."""
        lock, run = ExitStack(), job.config.run_id
        try:
            lock.enter_context(disk.alone(job.folder))
        except disk.Busy:
            self.pending.append((time.monotonic() + WAIT, job))
            self.tell(Event("busy", run))
            return
        with lock:
            if job.done:  # by another launcher, before it was locked here
                self._finish(job)
                return
            self.tickets += 1
            ticket = f"{run}.{self.tickets}"
            clear_parts(job.folder)
            files = files_at(job.folder, TRAVELLING)
            result = self.train.options(name=run).remote(job.to_json(), files, ticket, self.mailbox)
            self.tries[ticket] = _Try(job, result, lock.pop_all())

    def _wait(self) -> list[str]:
        """The tickets of the tasks that have ended; at most ``poll`` seconds pass."""
        if not self.tries:
            time.sleep(self.poll)
            return []
        by_result = {found.result: ticket for ticket, found in self.tries.items()}
        ended, _ = self.ray.wait(list(by_result), num_returns=1, timeout=self.poll)
        return [by_result[result] for result in ended]

    def _fetch(self) -> None:
        """Empty the mailbox; news of a try that is over is dropped."""
        try:
            news = self.ray.get(self.mailbox.take.remote())
        except self.ray.exceptions.RayError as error:
            raise ClusterError(
                f"The cluster is lost ({type(error).__name__}); start the same command again: every run goes "
                "on from its last checkpoint."
            ) from error
        for ticket, (done, files) in news.items():
            if ticket in self.tries:
                self._heard(self.tries[ticket], done, files)

    def _heard(self, found: _Try, done: int, files: dict[str, bytes]) -> None:
        run = found.job.config.run_id
        try:
            bring_home(found.job.folder, files)
        except StrangeFile as error:
            found.refused = f"StrangeFile: {error}"
            self.ray.cancel(found.result, force=True)
            return
        if not found.started:
            found.started = True
            self.tell(Event("started", run))
        if done:
            self.tell(Event("progress", run, done))

    def _end(self, ticket: str) -> None:
        """A task has ended: its files come home, or its job is tried again."""
        found = self.tries.pop(ticket)
        with found.lock:
            try:
                reason, files = self.ray.get(found.result)
                if not (found.refused or reason):
                    bring_home(found.job.folder, files)
            except StrangeFile as error:
                reason = f"StrangeFile: {error}"
            except self.ray.exceptions.RayError as error:
                reason = _why(error)
        reason = found.refused or reason
        if reason:
            self._failed(found.job, reason)
        else:
            self._finish(found.job)

    def _finish(self, job: Job) -> None:
        self.outcome.done.append(job.config.run_id)
        self.tell(Event("done", job.config.run_id, job.config.steps))

    def _failed(self, job: Job, reason: str) -> None:
        run = job.config.run_id
        self.attempts[run] = self.attempts.get(run, 0) + 1
        note_failure(job, self.attempts[run], reason)
        if self.attempts[run] <= self.retries:
            self.pending.append((0.0, job))
            self.tell(Event("retry", run, reason=reason))
        else:
            self.outcome.failed[run] = reason
            self.tell(Event("failed", run, reason=reason))

    def _stop(self) -> None:
        """End what still runs and free the folders; each run goes on from its last checkpoint next time."""
        with ExitStack() as locks:
            for found in self.tries.values():
                locks.push(found.lock)
            results = [found.result for found in self.tries.values()]
            for result in results:
                self.ray.cancel(result, force=False)
            if results:  # a moment in which the nodes remove their temporary folders
                _, results = self.ray.wait(results, num_returns=len(results), timeout=GRACE)
            for result in results:
                self.ray.cancel(result, force=True)
            self.ray.kill(self.mailbox)


def _why(error: Exception) -> str:
    """What became of a task that returned nothing: its own error, or how its process was lost."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, Exception):
        return f"{type(cause).__name__}: {cause}"
    first = str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else "no reason given"
    return f"The process that trained it was lost ({type(error).__name__}: {first})."
