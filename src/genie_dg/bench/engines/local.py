"""The local engine: a few processes share the jobs of a sweep.

Every worker is a process of its own, so a run that crashes, runs out of memory or is killed takes nobody with
it: its job is tried again, and then reported with the reason. Workers die with the launcher. Two launchers on
one sweep do not train a run twice, because a run's folder has a lock; a run that another launcher holds is
waited for.
"""

from __future__ import annotations

import json
import selectors
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from genie_dg.check import whole_number
from genie_dg.files import Busy

from ..options import Job
from .queue import WAIT, Event, EventReport, Outcome, Queue
from .server import WorkerServer


@dataclass
class _Worker:
    server: WorkerServer
    number: int
    channel: socket.socket
    device: str
    job: Job | None = None
    half_line: bytes = b""


def devices_for(workers: int, device: str) -> list[str]:
    """A device for each worker: GPUs in turn when there are any and none was named."""
    if device not in ("", "cuda"):
        return [device] * workers
    import torch

    count = torch.cuda.device_count()
    return [f"cuda:{k % count}" if count else "cpu" for k in range(workers)]


def launch(
    jobs: Sequence[Job],
    workers: int,
    *,
    retries: int = 1,
    device: str = "",
    report: EventReport | None = None,
    server: WorkerServer | None = None,
) -> Outcome:
    """Train all jobs that are not done; returns when each is done or has failed for good.

    Args:
        jobs: what to train.
        workers: how many at a time; they change nothing in the results.
        retries: how often a job that failed is tried again.
        device: for all workers; by default GPUs in turn, or the CPU.
        report: called with every event.
        server: from which workers are forked, started before to save time; it is stopped at the end.
    """
    whole_number("workers", workers)
    queue = Queue(jobs, retries, report)
    if not len(queue):
        return queue.outcome
    return _Launch(queue, workers, device, server or WorkerServer()).run()


def launch_here(
    jobs: Sequence[Job], *, retries: int = 1, device: str = "cpu", report: EventReport | None = None
) -> Outcome:
    """The same in this process, one job after another: for debuggers, and for machines without room for two."""
    from ..jobs import OpenSets, run_job

    queue, opened = Queue(jobs, retries, report), OpenSets()
    while len(queue):
        job = queue.next()
        if job is None:
            time.sleep(WAIT / 4)
            continue
        run = job.config.run_id

        def progress(done: int, record: Any, run: str = run) -> None:
            queue.tell(Event("progress", run, done))

        try:
            queue.tell(Event("started", run))
            run_job(job.changed(device=device or "cpu"), opened, progress)
        except Busy:
            queue.busy(job)
        except Exception as error:  # whatever it is, it becomes a line of the sweep's report
            queue.fail(job, f"{type(error).__name__}: {error}")
        else:
            queue.finish(job)
    return queue.outcome


class _Launch:
    """The state of one launch; `run` is its loop."""

    def __init__(self, queue: Queue, workers: int, device: str, server: WorkerServer) -> None:
        self.queue, self.server = queue, server
        self.selector = selectors.DefaultSelector()
        self.devices = devices_for(min(workers, len(queue)), device)
        self.workers: list[_Worker] = []

    def run(self) -> Outcome:
        try:
            self.workers += [self._start(name) for name in self.devices]
            while len(self.queue) or any(worker.job for worker in self.workers):
                self._hand_out()
                for key, _ in self.selector.select(timeout=WAIT / 4):
                    self._read(key.data)
        finally:
            self._stop()
        return self.queue.outcome

    def _start(self, device: str) -> _Worker:
        try:
            number, channel = self.server.start()
        except OSError:  # it was killed, and its workers with it
            self.server.stop()
            self.server = WorkerServer()
            number, channel = self.server.start()
        worker = _Worker(self.server, number, channel, device)
        self.selector.register(channel, selectors.EVENT_READ, worker)
        return worker

    def _hand_out(self) -> None:
        """Give every idle worker a job that is due."""
        for worker in self.workers:
            job = self.queue.next() if worker.job is None else None
            if job is not None:
                self._give(worker, job)

    def _give(self, worker: _Worker, job: Job) -> None:
        worker.job = job
        line = job.changed(device=worker.device).to_json() + "\n"
        # Where it died while idle, its end is read next, and the job is tried again.
        with suppress(BrokenPipeError, ConnectionResetError):
            worker.channel.sendall(line.encode("utf-8"))

    def _read(self, worker: _Worker) -> None:
        """Every whole line that has come; what is left of one waits for its rest."""
        try:
            block = worker.channel.recv(2**16)
        except ConnectionResetError:
            block = b""
        if not block:
            self._replace(worker)
            return
        *lines, worker.half_line = (worker.half_line + block).split(b"\n")
        for line in lines:
            self._heard(worker, json.loads(line))

    def _heard(self, worker: _Worker, event: dict[str, Any]) -> None:
        job = worker.job
        if job is None or event["run"] != job.config.run_id:
            return
        if event["event"] in ("done", "busy", "failed"):
            worker.job = None
        if event["event"] == "done":
            self.queue.finish(job)
        elif event["event"] == "busy":
            self.queue.busy(job)
        elif event["event"] == "failed":
            self.queue.fail(job, event["reason"])
        else:
            self.queue.tell(Event(event["event"], event["run"], int(event.get("done", 0))))

    def _replace(self, worker: _Worker) -> None:
        """A worker ended by itself: start a new one, and try its job again."""
        self.selector.unregister(worker.channel)
        worker.channel.close()
        code = worker.server.exit_code(worker.number)
        how = (
            "the process it was forked from"
            if code is None
            else f"signal {-code}"
            if code < 0
            else f"exit code {code}"
        )
        self.workers[self.workers.index(worker)] = self._start(worker.device)
        if worker.job is not None:
            self.queue.fail(worker.job, f"The process that trained it ended with {how}.")

    def _stop(self) -> None:
        """End all workers; what they were at is resumed from its checkpoint next time."""
        for worker in self.workers:
            worker.channel.close()
        self.server.stop()
        self.selector.close()
