"""The engine of this process, one run after another: for debuggers, and for machines without room for two."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ..jobs import OpenSets, attempt
from ..options import Job
from .engine import POLL, Engine, EngineOptions, Tell


class HereEngine(Engine):
    """Trains in this process."""

    def __init__(self, options: EngineOptions) -> None:
        super().__init__(options)
        self._opened = OpenSets()
        self._job: Job | None = None

    @property
    def room(self) -> int:
        return int(self._job is None)

    def submit(self, jobs: Sequence[Job]) -> Sequence[Job]:
        (self._job,) = jobs
        return ()

    def poll(self, tell: Tell) -> None:
        if self._job is None:
            time.sleep(POLL)
            return
        job, self._job = self._job, None
        tell(attempt(job.changed(device=self.options.device or "cpu"), self._opened, tell))

    def cancel(self) -> None:
        """Nothing runs when nobody polls."""
