"""How a run ended: written by whoever ends it, read by everyone.

A line of ``outcomes.jsonl`` for each attempt; the last one counts. A run without one was interrupted.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path

import msgspec

from genie_dg.files import append_line, read_lines

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
    """

    ending: Ending
    reason: str = ""
    error: str = ""
    attempt: int = 1
    job: str = ""


def outcome_of(error: BaseException, attempt: int = 1, job: str = "") -> Outcome:
    """What an exception that ended an attempt means; its class says so by ``ending``."""
    ending = Ending.stopped if isinstance(error, KeyboardInterrupt) else getattr(error, "ending", Ending.failed)
    return Outcome(ending, str(error), type(error).__name__, attempt, job)


def note_outcome(folder: Path, outcome: Outcome) -> None:
    """Append an outcome to those of a run."""
    folder.mkdir(parents=True, exist_ok=True)
    append_line(folder / OUTCOMES, msgspec.to_builtins(outcome))


def read_outcomes(folder: str | Path, problems: list[str] | None = None) -> list[Outcome]:
    """All attempts at a run, in order; a line that is none adds a sentence to ``problems``."""
    path = Path(folder, OUTCOMES)
    lines, unread = read_lines(path)
    outcomes: list[Outcome] = []
    for line in lines:
        try:
            outcomes.append(msgspec.convert(line, Outcome))
        except msgspec.ValidationError as error:
            unread.append(f"A line of {path} is not an outcome ({error}); it is left out.")
    if problems is not None:
        problems += unread
    return outcomes
