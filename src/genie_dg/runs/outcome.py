"""How a run ended: written by whoever ends it, read by everyone.

A line of ``outcomes.jsonl`` for each attempt; the last one counts. A run without one was interrupted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path

import msgspec

from genie_dg.files import Busy, append_line, read_lines

OUTCOMES = "outcomes.jsonl"


class Ending(str, Enum):
    """How an attempt at a run ended."""

    finished = "finished"
    diverged = "diverged"
    failed = "failed"
    stopped = "stopped"


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """One attempt at a run.

    Args:
        ending: how it ended. A run that diverged (its loss is not finite) would diverge again in the same
            step: it is a draw of its row and not tried again. One that failed is tried again.
        reason: why, in words; empty for a run that finished.
        error: the name of the exception's class, empty where there was none.
        attempt: which one, from 1.
        job: the id of the cluster's job, empty where there was none.

    >>> str(Outcome(Ending.failed, "the disk is full", "FileError"))
    'FileError: the disk is full'
    """

    ending: Ending
    reason: str = ""
    error: str = ""
    attempt: int = 1
    job: str = ""

    def __str__(self) -> str:
        return f"{self.error}: {self.reason}" if self.error else self.reason


def outcome_of(error: BaseException, job: str = "") -> Outcome:
    """What an exception that ended an attempt means; its class says so by ``ending``."""
    ending = Ending.stopped if isinstance(error, KeyboardInterrupt) else getattr(error, "ending", Ending.failed)
    return Outcome(ending, str(error), type(error).__name__, job=job)


def note_outcome(folder: Path, outcome: Outcome) -> Outcome:
    """Append an outcome to those of a run; returns it with the number of its attempt."""
    folder.mkdir(parents=True, exist_ok=True)
    outcome = msgspec.structs.replace(outcome, attempt=len(read_outcomes(folder)) + 1)
    append_line(folder / OUTCOMES, msgspec.to_builtins(outcome))
    return outcome


@contextmanager
def recorded(folder: Path, job: str = "") -> Iterator[None]:
    """Note how the attempt that happens inside ends; exceptions go on.

    Nothing is noted where it is no attempt (the run is complete already, or another process trains it), or
    where the process itself is asked to end.

    Args:
        folder: of the run.
        job: the id of the cluster's job.
    """
    if (folder / "done").exists():
        yield
        return
    try:
        yield
    except (Busy, SystemExit):
        raise
    except BaseException as error:
        note_outcome(folder, outcome_of(error, job))
        raise
    note_outcome(folder, Outcome(Ending.finished, job=job))


def read_outcomes(folder: Path, problems: list[str] | None = None) -> list[Outcome]:
    """All attempts at a run, in order; a line that is none adds a sentence to ``problems``."""
    lines, unread = read_lines(folder / OUTCOMES)
    outcomes: list[Outcome] = []
    for line in lines:
        try:
            outcomes.append(msgspec.convert(line, Outcome))
        except msgspec.ValidationError as error:
            unread = [*unread, f"A line of {folder / OUTCOMES} is not an outcome ({error}); it is left out."]
    if problems is not None:
        problems += unread
    return outcomes
