"""The local launcher: a few processes share the jobs of a sweep.

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
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

from genie_dg.runs import folder as disk

from .jobs import Job

WAIT = 1.0
"""Seconds before a run that another launcher holds is looked at again."""


@dataclass(frozen=True)
class Event:
    """What happened to a run: started, progress, done, busy, retry or failed."""

    kind: str
    run: str
    done: int = 0
    reason: str = ""


@dataclass
class Outcome:
    """How a launch ended: run ids by fate."""

    done: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


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


def launch(
    jobs: Sequence[Job],
    workers: int,
    *,
    retries: int = 1,
    device: str = "",
    threads: int = 0,
    report: Callable[[Event], None] | None = None,
) -> Outcome:
    """Train all jobs that are not done; returns when each is done or has failed for good.

    Args:
        jobs: what to train.
        workers: how many at a time.
        retries: how often a job that failed is tried again.
        device: for all workers; by default GPUs in turn, or the CPU.
        threads: of each worker; 0 shares the cores.
        report: called with every event.
    """
    if workers < 1:
        raise ValueError(
            f"workers={workers} came; it must be 1 or more, so leave it out or give a number of cores."
        )
    return _Launch(jobs, workers, retries, device, threads or max(1, cores() // workers), report).run()


def launch_here(
    jobs: Sequence[Job], *, retries: int = 1, device: str = "cpu", report: Callable[[Event], None] | None = None
) -> Outcome:
    """The same in this process, one job after another: for debuggers, and for machines without room for two."""
    from .jobs import Shelf, run_job

    tell, outcome, shelf = report or (lambda event: None), Outcome(), Shelf()
    pending = deque((1, job) for job in jobs)
    while pending:
        attempt, job = pending.popleft()
        run = job.config.run_id

        def progress(done: int, record: Any, run: str = run) -> None:
            tell(Event("progress", run, done))

        try:
            if not job.done:
                tell(Event("started", run))
                run_job(job.on(device or "cpu", job.threads), shelf, progress)
        except disk.Busy:
            tell(Event("busy", run))
            time.sleep(WAIT)
            pending.append((attempt, job))
        except Exception as error:  # whatever it is, it becomes a line of the sweep's report
            reason = f"{type(error).__name__}: {error}"
            note_failure(job, attempt, reason)
            if attempt <= retries:
                pending.append((attempt + 1, job))
            else:
                outcome.failed[run] = reason
            tell(Event("retry" if attempt <= retries else "failed", run, reason=reason))
        else:
            outcome.done.append(run)
            tell(Event("done", run, job.config.steps))
    return outcome


def note_failure(job: Job, attempt: int, reason: str) -> None:
    """Add a line to the run's failures."""
    job.folder.mkdir(parents=True, exist_ok=True)
    disk.append_line(job.folder / disk.FAILURES, {"attempt": attempt, "reason": reason})


class _Launch:
    """The state of one launch; `run` is its loop."""

    def __init__(
        self,
        jobs: Sequence[Job],
        workers: int,
        retries: int,
        device: str,
        threads: int,
        report: Callable[[Event], None] | None,
    ) -> None:
        self.retries, self.threads = retries, threads
        self.tell = report or (lambda event: None)
        self.outcome = Outcome([job.config.run_id for job in jobs if job.done])
        self.pending: deque[tuple[float, Job]] = deque((0.0, job) for job in jobs if not job.done)
        self.attempts: dict[str, int] = {}
        self.selector = selectors.DefaultSelector()
        count = min(workers, len(self.pending))
        self.workers = [self._start(name) for name in devices_for(count, device)]

    def run(self) -> Outcome:
        try:
            while self.pending or any(worker.job for worker in self.workers):
                self._hand_out()
                for key, _ in self.selector.select(timeout=WAIT / 4):
                    self._read(key.data)
        finally:
            self._stop()
        return self.outcome

    def _start(self, device: str) -> _Worker:
        command = [sys.executable, "-m", "genie_dg.bench.worker"]
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
            if worker.job is None and self.pending:
                due, job = self.pending.popleft()
                if job.done:  # by another launcher, meanwhile
                    self._finish(job)
                elif due > time.monotonic():
                    self.pending.append((due, job))
                else:
                    self._give(worker, job)

    def _give(self, worker: _Worker, job: Job) -> None:
        worker.job = job
        assert worker.process.stdin is not None
        try:
            worker.process.stdin.write((job.on(worker.device, self.threads).to_json() + "\n").encode("utf-8"))
            worker.process.stdin.flush()
        except BrokenPipeError:  # it died while idle; its end is read next, and the job is tried again
            return

    def _read(self, worker: _Worker) -> None:
        """Every whole line that has come; what is left of one waits for its rest."""
        block = os.read(worker.events.fileno(), 2**16)
        if not block:
            self._bury(worker)
            return
        *lines, worker.half_line = (worker.half_line + block).split(b"\n")
        for line in lines:
            self._heard(worker, json.loads(line))

    def _heard(self, worker: _Worker, event: dict[str, Any]) -> None:
        job = worker.job
        if job is None or event["run"] != job.config.run_id:
            return
        if event["event"] == "done":
            worker.job = None
            self._finish(job)
        elif event["event"] == "busy":
            worker.job = None
            self.pending.append((time.monotonic() + WAIT, job))
            self.tell(Event("busy", event["run"]))
        elif event["event"] == "failed":
            worker.job = None
            self._failed(job, event["reason"])
        else:
            self.tell(Event(event["event"], event["run"], int(event.get("done", 0))))

    def _finish(self, job: Job) -> None:
        self.outcome.done.append(job.config.run_id)
        self.tell(Event("done", job.config.run_id, job.config.steps))

    def _bury(self, worker: _Worker) -> None:
        """A worker ended by itself: try its job again in a new one."""
        self.selector.unregister(worker.events)
        code = worker.process.wait()
        worker.events.close()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        self.workers[self.workers.index(worker)] = self._start(worker.device)
        if worker.job is not None:
            self._failed(worker.job, f"The process that trained it ended with {how}.")

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
        """End all workers; what they were at is resumed from its checkpoint next time."""
        for worker in self.workers:
            worker.process.kill()
            worker.process.wait()
            worker.events.close()
            if worker.process.stdin is not None:
                worker.process.stdin.close()
        self.selector.close()
