"""What an engine is: it is given jobs, tells how they are, and can be told to stop.

Which jobs are due, which are tried again, and what is noted is decided above the engines, once, in
`genie_dg.bench.engines.launch`.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from genie_dg.check import InputError
from genie_dg.data.registry import SETS
from genie_dg.runs.outcome import Outcome

from ..options import Job
from ..status import RunState

POLL = 0.25
"""Seconds that an engine waits for news at most."""


class ClusterError(InputError):
    """The cluster cannot be used as asked; the message says what to do."""


@dataclass(frozen=True)
class Update:
    """News of a run.

    An engine tells one of these states: *running*; *done* or *failed* when an attempt has ended; *stopped* when
    it ended and the run is not to blame, without an outcome where another process trains the run.

    Args:
        run: its id.
        state: in which it is now.
        steps: that it has behind it.
        outcome: how the attempt ended, unless it did well or has noted that itself.
    """

    run: str
    state: RunState
    steps: int = 0
    outcome: Outcome | None = None

    @property
    def reason(self) -> str:
        """Why the attempt ended; empty where there is nothing to say."""
        return "" if self.outcome is None else str(self.outcome)

    @property
    def headline(self) -> str:
        """What a line for people begins with: *done*, *failed* or *retry*; empty where none is needed."""
        if self.state is RunState.stopped:
            return "retry" if self.outcome else ""
        return "" if self.state is RunState.running else self.state.value


Tell = Callable[[Update], None]


@dataclass(frozen=True)
class EngineOptions:
    """What an engine is built from.

    Args:
        workers: runs at a time; 0 for one for each GPU, or for each core.
        device: of all runs; by default GPUs where there are any.
        say: called with sentences for people.
        flags: the engine's own flags that were given, by name.
    """

    workers: int = 0
    device: str = ""
    say: Callable[[str], None] = print
    flags: Mapping[str, Any] = field(default_factory=dict)


class Engine(ABC):
    """A place where runs are trained; one object serves one launch.

    Args:
        options: what it is built from; what cannot be is refused here, before data is opened.
    """

    def __init__(self, options: EngineOptions) -> None:
        self.options = options

    def start(self, jobs: Sequence[Job]) -> None:  # noqa: B027 (most engines need nothing)
        """Get ready for these jobs."""

    @property
    def room(self) -> int:
        """How many more jobs it takes now."""
        return sys.maxsize

    @abstractmethod
    def submit(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """Take jobs, at most `room`; returns those that must be offered again later."""

    @abstractmethod
    def poll(self, tell: Tell) -> None:
        """Tell the news of jobs that were submitted; waits a moment where there is none."""

    @abstractmethod
    def cancel(self) -> None:
        """The launch is over: end what is still running, or say how it is ended."""


def with_whole_paths(job: Job) -> Job:
    """The job with absolute paths, since a node's folder is not this process's."""

    def whole(path: str) -> str:
        return str(Path(path).absolute()) if path else ""

    data = whole(job.data) if job.data not in SETS and Path(job.data).exists() else job.data
    options = job.options
    places = {name: whole(getattr(options, name)) for name in ("out", "root", "cache", "weights")}
    return replace(job, data=data).changed(**places, plugin=tuple(whole(file) for file in options.plugin))
