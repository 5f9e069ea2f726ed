"""Which runs of a sweep were given to a cluster's queue, ``sweeps/<name>.slurm.jsonl`` beside the sweep's list.

A submission is written down before it is made, under a name that no other has, and once more when its job id is
known. So a launcher that is killed between the two is no problem: the next one asks the queue for the name.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from genie_dg.files import append_line, read_lines

from .sweep_list import FOLDER

SUFFIX = ".slurm.jsonl"

_NAME = re.compile(r"[\w.-]+")
"""Of a sweep; a list that somebody changed may hold another, which is not used as a path."""


@dataclass(frozen=True)
class Submission:
    """Some runs that were submitted together, as a job array or, where there is one, as a single job.

    Args:
        name: of the job in the queue; no two submissions share one.
        runs: ids; the place of a run is its index in the array.
        at: when it was submitted, as text.
        job: the id that the queue gave it; empty while it is not known.
    """

    name: str
    runs: tuple[str, ...]
    at: str
    job: str = ""

    def job_of(self, run: str) -> str:
        """The job id of one run.

        >>> Submission("a-1", ("x", "y"), "today", "12").job_of("y")
        '12_1'
        """
        return f"{self.job}_{self.runs.index(run)}" if len(self.runs) > 1 else self.job


def new_submission(sweep: str, runs: Sequence[str]) -> Submission:
    """A submission that was not made yet."""
    return Submission(f"{sweep}-{secrets.token_hex(4)}", tuple(runs), time.strftime("%Y-%m-%d %H:%M:%S"))


def place_of(out: Path, sweep: str) -> Path:
    """The file of a sweep's submissions."""
    return out / FOLDER / f"{sweep}{SUFFIX}"


def note_planned(out: Path, sweep: str, submission: Submission) -> None:
    """A submission is about to be made."""
    line = {"submission": submission.name, "runs": list(submission.runs), "at": submission.at}
    append_line(place_of(out, sweep), line)


def note_made(out: Path, sweep: str, submission: Submission, job: str) -> Submission:
    """The queue has taken it under this job id."""
    append_line(place_of(out, sweep), {"submission": submission.name, "job": job})
    return replace(submission, job=job)


def read_submissions(out: Path, sweep: str, problems: list[str] | None = None) -> list[Submission]:
    """All submissions of a sweep, the oldest first.

    Args:
        out: the folder of runs.
        sweep: its name.
        problems: gets a sentence for each line that is left out.
    """
    lines, unread = read_lines(place_of(out, sweep)) if _NAME.fullmatch(sweep) else ([], [])
    if problems is not None:
        problems += unread
    found: dict[str, Submission] = {}
    for line in lines:
        name, job, runs = line.get("submission"), line.get("job"), _texts(line.get("runs"))
        if not isinstance(name, str):
            continue
        if runs:
            found[name] = Submission(name, runs, str(line.get("at", "")))
        elif name in found and isinstance(job, str):
            found[name] = replace(found[name], job=job)
    return list(found.values())


def _texts(value: Any) -> tuple[str, ...]:
    """A list of texts; nothing where it is another thing."""
    texts = value if isinstance(value, list) else []
    return tuple(texts) if all(isinstance(one, str) for one in texts) else ()


def last_jobs(submissions: Sequence[Submission]) -> dict[str, tuple[str, str]]:
    """For each run the job id of its last submission, and when that was."""
    return {run: (one.job_of(run), one.at) for one in submissions if one.job for run in one.runs}
