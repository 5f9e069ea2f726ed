"""The engine for a Ray cluster: one Ray task for each run, and every file is sent back to the launcher.

The contract is that of the local engine: a run whose worker is killed goes on from the last files that were
sent back, a run that fails is tried again and then reported with its reason, and a run's folder is locked while
this launcher has the run. A run whose node is lost goes on elsewhere, and does not count as failed where it had
come to a checkpoint. Nodes need this package and Ray; plugins are sent to them, and so is data that they lack
when it is small (`genie_dg.bench.engines._ray_nodes`). Embedded sets need nothing.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from genie_dg.check import whole_number
from genie_dg.files import Busy, FileError, remove_parts
from genie_dg.runs import folder as files

from ..options import Job
from ..trackers.tracker import check_trackers
from ._paths import with_whole_paths
from ._ray_cluster import connection, slots_of, why
from ._ray_copies import Copies, remove_left_folders
from ._ray_files import TO_RESUME, Progress, UnexpectedFile, files_at, train_remotely, write_files
from ._ray_nodes import prepare
from .queue import ClusterError, Event, EventReport, Outcome, Queue

AHEAD = 2
"""Runs that wait in Ray's own queue, so that a node is not idle until the launcher looks again."""

GRACE = 3.0
"""Seconds that interrupted runs have to clean up before they are killed."""


def launch_ray(
    jobs: Sequence[Job],
    *,
    address: str = "",
    retries: int = 1,
    cpus: float | None = None,
    gpus: float = 0,
    device: str = "",
    report: EventReport | None = None,
    poll: float = 0.2,
) -> Outcome:
    """Train all jobs that are not done; returns when each is done or has failed for good.

    Args:
        jobs: what to train; relative paths in them are taken from this process's folder.
        address: of a running cluster: ``HOST:PORT``, ``auto`` or ``ray://HOST:PORT``; it is left running. By
            default a cluster on this machine's cores is started and stopped, or, where this process is
            connected to one already, that one is used.
        retries: how often a job that failed is tried again.
        cpus: that each run holds; by default as many as the runs have threads.
        gpus: that each run holds; a fraction lets runs share one. On a cluster that was named, runs wait until
            some node has what they ask for.
        device: for all runs; by default ``cuda`` where ``gpus`` is more than 0, or the CPU.
        report: called with every event.
        poll: seconds between two looks at what was sent.
    """
    if cpus is None:
        cpus = max((job.config.threads for job in jobs), default=1)
    _check(jobs, retries, cpus, gpus, device)
    if all(job.done for job in jobs):
        return Outcome([job.config.run_id for job in jobs])
    where = device or ("cuda" if gpus else "cpu")
    ready = [with_whole_paths(job).changed(device=where) for job in jobs]
    try:
        with connection(address) as ray:
            if not address and slots_of(ray, cpus, gpus) == 0:
                raise ClusterError(
                    f"A run asks for {cpus:g} CPUs and {gpus:g} GPUs, and this machine has fewer; "
                    "ask for less, or name the address of a cluster that has them."
                )
            copies = prepare(ray, [job for job in ready if not job.done], cpus, gpus)
            return _Launch(ray, Queue(ready, retries, report), copies, cpus, gpus, poll).run()
    finally:
        if not address:
            remove_left_folders()


def _check(jobs: Sequence[Job], retries: int, cpus: float, gpus: float, device: str) -> None:
    whole_number("retries", retries, 0, error=ClusterError)
    for name, value in (("cpus", cpus), ("gpus", gpus)):
        if not (0 <= value <= 1 or (value > 1 and float(value).is_integer())):
            raise ClusterError(f"got {name}={value}; expected a fraction from 0 to 1, or a whole number.")
    if cpus == gpus == 0:
        raise ClusterError("got cpus=0 and gpus=0; a run must hold some of one, or all would run at once.")
    if device.startswith("cuda") and gpus == 0:
        raise ClusterError(f"got device={device!r} with gpus=0; give gpus=1, or a fraction to share one.")
    trackers = check_trackers(name for job in jobs for name in job.options.tracks)
    for row in trackers:
        if row.keeps_files():
            raise ClusterError(
                f"The files of --track {row.name} are not sent back from a cluster; leave it out."
            )


@dataclass
class _Try:
    """One try of a job, the lock of its folder, and whether it was heard of and has sent a checkpoint."""

    job: Job
    result: Any
    lock: ExitStack
    started: bool = False
    saved: bool = False
    refused: str = ""


class _Launch:
    """The state of one launch; `run` is its loop."""

    def __init__(self, ray: Any, queue: Queue, copies: Copies, cpus: float, gpus: float, poll: float) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self.ray, self.queue, self.cpus, self.gpus, self.poll = ray, queue, cpus, gpus, poll
        self.copies, self.tickets, self.said_waiting = copies, 0, False
        self.tries: dict[str, _Try] = {}
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        lasting = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1}  # lost news comes with the next
        self.progress = ray.remote(**lasting, scheduling_strategy=here)(Progress).remote()
        self.train = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=0)(train_remotely)

    def run(self) -> Outcome:
        try:
            while len(self.queue) or self.tries:
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
        return self.queue.outcome

    def _hand_out(self) -> None:
        """Give Ray the jobs that are due, a few more than it has room for."""
        if not len(self.queue):
            return
        slots = slots_of(self.ray, self.cpus, self.gpus)
        if slots == 0 and not self.said_waiting:
            self.said_waiting = True
            reason = (
                f"No node of the cluster has {self.cpus:g} CPUs and {self.gpus:g} GPUs now; waiting for one."
            )
            self.queue.tell(Event("busy", self.queue.first.config.run_id, reason=reason))
        while len(self.tries) < slots + AHEAD and (job := self.queue.next()) is not None:
            self._give(job)

    def _give(self, job: Job) -> None:
        """Lock the run's folder, and send what it holds."""
        lock = ExitStack()
        try:
            lock.enter_context(files.alone(job.folder))
        except Busy:
            self.queue.busy(job)
            return
        with lock:
            if job.done:  # by another launcher, before it was locked here
                self.queue.finish(job)
                return
            self.tickets += 1
            ticket = f"{job.config.run_id}.{self.tickets}"
            remove_parts(job.folder)
            sent = files_at(job.folder, TO_RESUME)
            task = self.train.options(name=job.config.run_id)
            result = task.remote(job.to_json(), sent, ticket, self.progress, self.copies)
            self.tries[ticket] = _Try(job, result, lock.pop_all())

    def _wait(self) -> list[str]:
        """The tickets of the tasks that have ended; at most ``poll`` seconds pass."""
        if not self.tries:
            time.sleep(self.poll)
            return []
        by_result = {one.result: ticket for ticket, one in self.tries.items()}
        ended, _ = self.ray.wait(list(by_result), num_returns=1, timeout=self.poll)
        return [by_result[result] for result in ended]

    def _fetch(self) -> None:
        """Take what workers sent; news of a try that is over is dropped."""
        try:
            news = self.ray.get(self.progress.take.remote())
        except self.ray.exceptions.RayError as error:
            raise ClusterError(
                f"The cluster is lost ({type(error).__name__}); start the same command again: every run goes "
                "on from its last checkpoint."
            ) from error
        for ticket, (done, sent) in news.items():
            if ticket in self.tries:
                self._heard(self.tries[ticket], done, sent)

    def _heard(self, one: _Try, done: int, sent: dict[str, bytes]) -> None:
        run = one.job.config.run_id
        try:
            write_files(one.job.folder, sent)
        except (UnexpectedFile, FileError) as error:
            one.refused = f"{type(error).__name__}: {error}"
            self.ray.cancel(one.result, force=True)
            return
        one.saved = one.saved or files.CHECKPOINT in sent
        if not one.started:
            one.started = True
            self.queue.tell(Event("started", run))
        if done:
            self.queue.tell(Event("progress", run, done))

    def _end(self, ticket: str) -> None:
        """A task has ended: its files are written, or its job is tried again."""
        one, node_lost = self.tries.pop(ticket), False
        with one.lock:
            try:
                reason, sent = self.ray.get(one.result)
                if not (one.refused or reason):
                    write_files(one.job.folder, sent)
            except (UnexpectedFile, FileError) as error:
                reason = f"{type(error).__name__}: {error}"
            except self.ray.exceptions.RayError as error:
                reason, node_lost = why(error), isinstance(error, self.ray.exceptions.NodeDiedError)
        reason = one.refused or reason
        if node_lost and one.saved and not one.refused:
            self.queue.again(one.job, reason)
        elif reason:
            self.queue.fail(one.job, reason)
        else:
            self.queue.finish(one.job)

    def _stop(self) -> None:
        """End what still runs and free the folders; each run goes on from its last checkpoint next time."""
        with ExitStack() as locks:
            for one in self.tries.values():
                locks.push(one.lock)
            results = [one.result for one in self.tries.values()]
            for result in results:
                self.ray.cancel(result, force=False)
            if results:  # a moment in which the nodes remove their temporary folders
                _, results = self.ray.wait(results, num_returns=len(results), timeout=GRACE)
            for result in results:
                self.ray.cancel(result, force=True)
            self.ray.kill(self.progress)
