"""The local engine: a few processes share the jobs of a sweep.

Every worker is a process of its own, so a run that crashes, runs out of memory or is killed takes nobody with
it: its job is tried again, and then reported with the reason. Workers die with the launcher. Two launchers on
one sweep do not train a run twice, because a run's folder has a lock; a run that another launcher holds is
waited for.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

from genie_dg.check import whole_number
from genie_dg.files import Busy

from ..options import Job
from .queue import WAIT, Event, EventReport, Outcome, Queue


@dataclass
class _Worker:
    process: subprocess.Popen[bytes]
    device: str
    job: Job | None = None
    half_line: bytes = b""

    @property
    def events(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout


def _die_with_parent() -> None:
    """Ask Linux to kill this process when the launcher is gone; elsewhere the end of input stops it."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def devices_for(workers: int, device: str) -> list[str]:
    """A device for each worker: GPUs in turn when there are any and none was named."""
    if device not in ("", "cuda"):
        return [device] * workers
    import torch

    count = torch.cuda.device_count()
    return [f"cuda:{k % count}" if count else "cpu" for k in range(workers)]


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else (os.cpu_count() or 1)


def threads_of(asked: int, workers: int) -> int:
    """The threads of each run: what was asked for, else ``OMP_NUM_THREADS``, else the cores, shared."""
    user = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    return asked or (int(user) if user.isdecimal() else 0) or max(1, cores() // workers)


def launch(
    jobs: Sequence[Job],
    workers: int,
    *,
    retries: int = 1,
    device: str = "",
    report: EventReport | None = None,
) -> Outcome:
    """Train all jobs that are not done; returns when each is done or has failed for good.

    Args:
        jobs: what to train.
        workers: how many at a time; they share the cores.
        retries: how often a job that failed is tried again.
        device: for all workers; by default GPUs in turn, or the CPU.
        report: called with every event.
    """
    whole_number("workers", workers)
    return _Launch(Queue(jobs, retries, report), workers, device).run()


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

    def __init__(self, queue: Queue, workers: int, device: str) -> None:
        self.queue = queue
        self.threads = threads_of(queue.first.options.threads if len(queue) else 0, workers)
        self.selector = selectors.DefaultSelector()
        self.workers = [self._start(name) for name in devices_for(min(workers, len(queue)), device)]

    def run(self) -> Outcome:
        try:
            while len(self.queue) or any(worker.job for worker in self.workers):
                self._hand_out()
                for key, _ in self.selector.select(timeout=WAIT / 4):
                    self._read(key.data)
        finally:
            self._stop()
        return self.queue.outcome

    def _start(self, device: str) -> _Worker:
        command = [sys.executable, "-m", "genie_dg.bench.engines.worker"]
        environment = {**os.environ, "OMP_NUM_THREADS": str(self.threads)}
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            preexec_fn=_die_with_parent,
        )
        worker = _Worker(process, device)
        self.selector.register(worker.events, selectors.EVENT_READ, worker)
        return worker

    def _hand_out(self) -> None:
        """Give every idle worker a job that is due."""
        for worker in self.workers:
            job = self.queue.next() if worker.job is None else None
            if job is not None:
                self._give(worker, job)

    def _give(self, worker: _Worker, job: Job) -> None:
        worker.job = job
        assert worker.process.stdin is not None
        try:
            worker.process.stdin.write(
                (job.changed(device=worker.device, threads=self.threads).to_json() + "\n").encode("utf-8")
            )
            worker.process.stdin.flush()
        except BrokenPipeError:  # it died while idle; its end is read next, and the job is tried again
            return

    def _read(self, worker: _Worker) -> None:
        """Every whole line that has come; what is left of one waits for its rest."""
        block = os.read(worker.events.fileno(), 2**16)
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
        self.selector.unregister(worker.events)
        code = worker.process.wait()
        worker.events.close()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        self.workers[self.workers.index(worker)] = self._start(worker.device)
        if worker.job is not None:
            self.queue.fail(worker.job, f"The process that trained it ended with {how}.")

    def _stop(self) -> None:
        """End all workers; what they were at is resumed from its checkpoint next time."""
        for worker in self.workers:
            worker.process.kill()
            worker.process.wait()
            worker.events.close()
            if worker.process.stdin is not None:
                worker.process.stdin.close()
        self.selector.close()
