"""The engine of one more thread of this process: the launcher stays free while runs are trained one by one."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from contextlib import suppress
from threading import Thread

from ..jobs import OpenSets, attempt
from ..options import Job
from .engine import POLL, Engine, EngineOptions, Tell, Update


class ThreadEngine(Engine):
    """Trains in one thread, since torch's random numbers and number of threads belong to the whole process."""

    def __init__(self, options: EngineOptions) -> None:
        super().__init__(options)
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._news: queue.SimpleQueue[Update] = queue.SimpleQueue()
        self._waiting = 0
        Thread(target=self._work, daemon=True).start()

    @property
    def room(self) -> int:
        return 1 - self._waiting

    def submit(self, jobs: Sequence[Job]) -> Sequence[Job]:
        for job in jobs:
            self._waiting += 1
            self._jobs.put(job.changed(device=self.options.device or "cpu"))
        return ()

    def poll(self, tell: Tell) -> None:
        with suppress(queue.Empty):
            update = self._news.get(timeout=POLL)
            self._waiting -= update.state.value != "running"
            tell(update)

    def cancel(self) -> None:
        """The thread ends after the run that it is at, or with the process."""
        self._jobs.put(None)

    def _work(self) -> None:
        opened = OpenSets()
        for job in iter(self._jobs.get, None):
            self._news.put(attempt(job, opened, self._news.put))
