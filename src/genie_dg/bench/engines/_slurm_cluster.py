"""What a Slurm cluster is asked and told through its commands: the queue, a submission.

The state of a job is what ``squeue`` says. It works on every cluster; ``sacct``, on which submitit relies for
that, needs an accounting database, which many have not. What sbatch refuses is not checked here before.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, field
from pathlib import Path

from .engine import ClusterError

_TIMEOUT = 60.0
"""Seconds in which a command of Slurm must answer."""
_NO_LIMIT = 9999
"""Time limits that one job may reach, for submitit; a task decides itself whether it goes on."""
_OVER = frozenset(
    {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL"}
    | {"OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT"}
)
"""States of a job that has ended."""
_OURS = re.compile(
    "array|cpus-per-task|error|gpus|job-name|(no-)?requeue|nodes|ntasks.*|open-mode|output|partition|signal|time|wrap"
)
"""Options of sbatch that this engine sets itself, or from flags of its own."""
_TIME = re.compile(r"(?:(\d{1,4})-)?(\d{1,6})(?::(\d{1,6}))?(?::(\d{1,6}))?")


def ask(*command: str) -> str:
    """What a command of Slurm prints; refused with its own words when it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ClusterError(f"{command[0]} does not answer ({error}); try again later.") from error
    if done.returncode:
        why = _first_line(done.stderr)
        raise ClusterError(f"{command[0]} failed ({why}); is this a login node of a cluster?")
    return done.stdout


def _first_line(text: str) -> str:
    """The first line of what a command complains of, without its own name."""
    lines = [line for line in text.strip().splitlines() if line.strip()] or ["no reason given"]
    return re.sub(r"^(\w+: )?(error: |fatal: )?", "", lines[0]).rstrip(".")


def minutes_of(text: str) -> int:
    """A time as Slurm writes it, in whole minutes: ``MM``, ``MM:SS``, ``HH:MM:SS``, ``D-HH``, ``D-HH:MM:SS``.

    >>> minutes_of("90"), minutes_of("2:00:00"), minutes_of("1-12"), minutes_of("0:30")
    (90, 120, 2160, 1)
    """
    match = _TIME.fullmatch(text.strip())
    days, *parts = match.groups() if match else (None, None, None, None)
    first, second, third = (int(part or 0) for part in parts)
    if days is not None:
        seconds = ((int(days) * 24 + first) * 60 + second) * 60 + third
    else:
        seconds = (first * 60 + second) * 60 + third if parts[2] is not None else first * 60 + second
    if seconds == 0:
        raise ClusterError(f"got --time {text!r}; expected minutes, HH:MM:SS or D-HH:MM:SS, such as 4:00:00.")
    return -(-seconds // 60)


def more_options(words: Iterable[str]) -> dict[str, str | bool]:
    """``KEY=VALUE`` words, and ``KEY`` alone for a switch, as options of sbatch.

    >>> more_options(["mem=8G", "cpu_freq=high", "exclusive"])
    {'mem': '8G', 'cpu-freq': 'high', 'exclusive': True}
    """
    options: dict[str, str | bool] = {}
    for word in words:
        key, equals, value = word.partition("=")
        key = key.strip().lstrip("-").replace("_", "-")
        if not re.fullmatch(r"[a-z][a-z-]*", key) or (equals and not value) or _OURS.fullmatch(key):
            raise ClusterError(
                f"got --slurm {word!r}; expected an option of sbatch that a sweep does not set itself, such as "
                "mem=8G."
            )
        options[key] = value if equals else True
    return options


@dataclass(frozen=True)
class Resources:
    """What each run asks Slurm for.

    Args:
        minutes: after which Slurm ends a job, which then goes on as another one.
        cpus: of a run.
        parallel: runs of one array at a time; 0 for as many as the cluster takes.
        options: others of sbatch.
    """

    minutes: int
    cpus: int = 1
    parallel: int = 0
    options: Mapping[str, str | bool] = field(default_factory=dict)

    @property
    def delay(self) -> int:
        """Seconds before the end at which Slurm warns a job."""
        return max(5, min(90, self.minutes * 60 // 5))


JobKey = tuple[str, int]
"""The name of a submission, and an index in it."""


@dataclass(frozen=True)
class QueuedJob:
    """What the queue says of a job: its id and its state."""

    job: str
    state: str

    @property
    def over(self) -> bool:
        return self.state in _OVER


def queued_jobs(names: Sequence[str]) -> dict[JobKey, QueuedJob]:
    """The jobs of these names that the queue knows; those that have ended stay there for some minutes."""
    if not names:
        return {}
    columns = "--format=%j|%F|%K|%T"
    lines = ask("squeue", "--noheader", "--array", "--states=all", f"--name={','.join(names)}", columns)
    jobs = {}
    for line in lines.splitlines():
        name, job, index, state = line.split("|")
        jobs[name, int(index) if index.isdigit() else 0] = QueuedJob(job, state)
    return jobs


class SubmissionRefused(ClusterError):
    """Slurm did not take a submission."""


def submit(name: str, folder: Path, tasks: Sequence[Callable[[], None]], asked: Resources) -> str:
    """Submit tasks as one array, or a single one as a job; returns its id.

    Args:
        name: of the job.
        folder: for its script, its pickles and its logs; it goes when Slurm refuses.
        tasks: what to call; they are pickled.
        asked: for each.
    """
    import submitit
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    executor = submitit.SlurmExecutor(folder=folder, max_num_timeout=_NO_LIMIT)
    executor.update_parameters(
        job_name=name,
        time=asked.minutes,
        cpus_per_task=asked.cpus,
        srun_args=[f"--cpus-per-task={asked.cpus}"],  # since Slurm 22.05 srun does not take it from sbatch
        signal_delay_s=asked.delay,
        array_parallelism=asked.parallel or len(tasks),
        stderr_to_stdout=True,
        wckey=None,
        additional_parameters={"requeue": True, **asked.options},
    )
    try:
        with outside_job(), redirect_stderr(io.StringIO()):
            jobs = executor.submit_array(list(tasks))
    except (FailedJobError, FailedSubmissionError, OSError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        why = _first_line(str(error))
        raise SubmissionRefused(f"Slurm refused the jobs ({why}); change what is asked for.") from error
    return str(jobs[0].job_id).partition("_")[0]


@contextmanager
def outside_job() -> Iterator[None]:
    """Hide the job in which this process may run itself; sbatch would take its settings for the new ones."""
    inside = "SLURM_JOB_ID" in os.environ
    names = [name for name in os.environ if name.startswith(("SLURM_", "SLURMD_", "SRUN_", "SUBMITIT_"))]
    hidden = {name: os.environ.pop(name) for name in names if inside and name != "SLURM_CONF"}
    try:
        yield
    finally:
        os.environ.update(hidden)
