"""A process that trains jobs: one JSON line in, events as JSON lines out, until the input ends.

``python -m genie_dg.bench.engines.worker`` is started by the local engine. Events are ``started``, ``progress``
(steps done), ``done``, ``busy`` (another launcher has the run) and ``failed`` with a reason. What a library
prints goes to stderr, so that it cannot break a line of events.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from typing import IO, Any

from genie_dg.files import Busy, FileWarning

from ..jobs import OpenSets, run_job
from ..options import job_from

EVERY = 0.2
"""Seconds between two reports of progress."""


def serve(lines: IO[bytes], events: IO[bytes]) -> None:
    """Train what comes, one job after another."""

    def tell(event: str, run: str, **more: Any) -> None:
        events.write((json.dumps({"event": event, "run": run, **more}) + "\n").encode("utf-8"))
        events.flush()

    opened = OpenSets()
    for line in lines:
        job = job_from(line)
        run = job.config.run_id
        tell("started", run)
        last = [0.0]

        def report(done: int, record: Any, run: str = run, last: list[float] = last) -> None:
            now = time.monotonic()
            if record is not None or now - last[0] > EVERY:
                last[0] = now
                tell("progress", run, done=done)

        try:
            run_job(job, opened, report)
        except Busy:
            tell("busy", run)
        except Exception as error:  # whatever it is, it becomes a line of the sweep's report
            tell("failed", run, reason=f"{type(error).__name__}: {error}")
        else:
            tell("done", run)


def main() -> None:
    """Serve stdin, with stdout kept for events alone."""
    warnings.simplefilter("ignore")
    warnings.simplefilter("always", FileWarning)
    warnings.showwarning = lambda message, *_, **__: print(f"genie-dg: {message}", file=sys.stderr, flush=True)
    events = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, events)


if __name__ == "__main__":
    main()
