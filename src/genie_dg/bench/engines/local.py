"""The engine of this machine: a few processes share the jobs of a sweep.

Every worker is a process of its own, so a run that crashes, runs out of memory or is killed takes no other run
with it. Workers are forked from the standard library's fork server, which imports torch and all that a run
needs once, while the launcher does other things; where there is no fork each worker imports for itself. A
worker ends with its launcher, in whatever way that ends, and leaves Ctrl-C to it.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import types
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import connection, forkserver
from multiprocessing.process import BaseProcess
from typing import Any

from genie_dg.files import FileWarning
from genie_dg.runs.outcome import Ending, Outcome
from genie_dg.runtime import cores, one_blas_thread

from ..options import Job
from ..status import RunState
from .engine import POLL, Engine, EngineOptions, Tell, Update

Channel = connection.Connection
GRACE = 10.0
"""Seconds that a worker has to end before it is killed."""


def default_workers(device: str, threads: int) -> int:
    """Runs at a time when nobody says how many: one for each GPU, or for each core that no other run uses."""
    import torch

    gpus = torch.cuda.device_count() if device in ("", "cuda") else 0
    return gpus or max(1, cores() // threads)


def devices_for(workers: int, device: str) -> list[str]:
    """A device for each worker: GPUs in turn when there are any and none was named."""
    if device not in ("", "cuda"):
        return [device] * workers
    import torch

    count = torch.cuda.device_count()
    return [f"cuda:{k % count}" if count else "cpu" for k in range(workers)]


@dataclass
class _Worker:
    """A process, the way to it, its device, and the job that it has."""

    process: BaseProcess
    channel: Channel
    device: str
    job: Job | None = None


class LocalEngine(Engine):
    """Trains in processes of this machine."""

    def __init__(self, options: EngineOptions) -> None:
        super().__init__(options)
        self._workers: list[_Worker] = []
        self._free: list[str] = []
        """The devices on which no worker is."""
        methods = multiprocessing.get_all_start_methods()
        self._context: Any = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
        if "forkserver" in methods:
            self._context.set_forkserver_preload(["genie_dg.bench.jobs"])
            with _nothing_of_this_process():
                forkserver.ensure_running()

    def start(self, jobs: Sequence[Job]) -> None:
        device = self.options.device
        workers = self.options.workers or default_workers(device, jobs[0].config.threads)
        self._free = devices_for(min(workers, len(jobs)), device)

    @property
    def room(self) -> int:
        return len(self._free) + sum(worker.job is None for worker in self._workers)

    def submit(self, jobs: Sequence[Job]) -> Sequence[Job]:
        for job in jobs:
            worker = next((one for one in self._workers if one.job is None), None) or self._start_worker()
            worker.job = job
            with suppress(OSError):  # it died while it had nothing to do: the next poll finds its end
                worker.channel.send(job.changed(device=worker.device))
        return ()

    def _start_worker(self) -> _Worker:
        """A new process; once more where the fork server was killed at this very moment."""
        ours, theirs = self._context.Pipe()
        with theirs:
            for last in (False, True):
                process = self._context.Process(target=_work, args=(theirs, os.getcwd(), dict(os.environ)))
                try:
                    with _nothing_of_this_process():
                        process.start()
                    break
                except (OSError, EOFError):
                    if last:
                        raise
        self._workers.append(_Worker(process, ours, self._free.pop(0)))
        return self._workers[-1]

    def poll(self, tell: Tell) -> None:
        by_channel = {worker.channel: worker for worker in self._workers}
        for channel in connection.wait(list(by_channel), POLL):
            worker = by_channel[channel]  # type: ignore[index]
            try:
                update: Update = worker.channel.recv()
            except (EOFError, OSError):
                self._bury(worker, tell)
                continue
            if update.state is not RunState.running:
                worker.job = None
            tell(update)

    def _bury(self, worker: _Worker, tell: Tell) -> None:
        """A worker ended by itself; the next job gets a new one."""
        worker.channel.close()
        worker.process.join()
        code = worker.process.exitcode or 0
        self._workers.remove(worker)
        self._free.append(worker.device)
        if worker.job is not None:
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            outcome = Outcome(Ending.failed, f"The process that trained it ended with {how}.")
            tell(Update(worker.job.config.run_id, RunState.failed, outcome=outcome))

    def cancel(self) -> None:
        """End all workers; what they were at is resumed from its checkpoint next time."""
        for worker in self._workers:
            worker.channel.close()
            worker.process.terminate()
        for worker in self._workers:
            worker.process.join(GRACE)
            worker.process.kill()
            worker.process.join()
        self._workers = []


@contextmanager
def _nothing_of_this_process() -> Iterator[None]:
    """Start a process without the main module of this one, which multiprocessing would run there again."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        with one_blas_thread():
            yield
    finally:
        sys.modules["__main__"] = main


def _work(channel: Channel, folder: str, environment: Mapping[str, str]) -> None:
    """Be a worker: train the jobs that come, until no more can come. What a library prints goes to stderr."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the run notes that it was stopped
    threading.Thread(target=_end_with_launcher, daemon=True).start()
    os.dup2(2, 1)
    os.environ.update(environment)
    os.chdir(folder)
    warnings.simplefilter("ignore")
    warnings.simplefilter("always", FileWarning)
    warnings.showwarning = lambda message, *_, **__: print(f"genie-dg: {message}", file=sys.stderr, flush=True)
    from ..jobs import OpenSets, attempt

    opened = OpenSets()
    with suppress(EOFError, OSError, KeyboardInterrupt):  # the launcher needs no more, or is gone
        while True:
            channel.send(attempt(channel.recv(), opened, channel.send))


def _end_with_launcher() -> None:
    launcher = multiprocessing.parent_process()
    if launcher is not None:
        connection.wait([launcher.sentinel])
        os._exit(1)
