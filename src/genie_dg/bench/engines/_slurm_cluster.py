"""What a Slurm cluster is asked and told through its commands: partitions, the queue, a submission.

The state of a job is what ``squeue`` says. It works on every cluster; ``sacct``, on which submitit relies for
that, needs an accounting database, which many have not.
"""

from __future__ import annotations

import importlib.util
import io
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, replace
from pathlib import Path

from .queue import ClusterError
from .slurm_options import Resources, is_time, minutes_of

COMMANDS = ("sbatch", "srun", "squeue", "sinfo", "scontrol", "scancel")
PATIENCE = 60.0
"""Seconds in which a command of Slurm must answer."""
DAY = 24 * 60
"""Minutes of a job where neither the command nor its partition says how long it may take."""
MOST_LIMITS = 9999
"""Time limits that one job may reach; a task decides itself whether it goes on."""
OVER = frozenset(
    {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL"}
    | {"OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT"}
)
"""States of a job that has ended."""
OF_ONE_MACHINE = ("/tmp", "/var/tmp", "/dev/shm", "/run")
"""Folders that every machine has for itself."""


def ask(*command: str) -> str:
    """What a command of Slurm prints; refused with its own words when it fails."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ClusterError(f"{command[0]} does not answer ({error}); try again later.") from error
    if done.returncode:
        raise ClusterError(f"{command[0]} failed ({_first(done.stderr)}); is this a login node of a cluster?")
    return done.stdout


def _first(text: str) -> str:
    """The first line of what a command complains of, without its own name."""
    lines = [line for line in text.strip().splitlines() if line.strip()] or ["no reason given"]
    return re.sub(r"^(\w+: )?(error: |fatal: )?", "", lines[0]).rstrip(".")


def check_installed() -> None:
    """Refuse where submitit or Slurm is missing."""
    if importlib.util.find_spec("submitit") is None:
        raise ClusterError(
            "--engine slurm needs submitit, not installed here; "
            'run pip install "genie-dg[slurm]" and try again.'
        )
    missing = [name for name in COMMANDS if shutil.which(name) is None]
    if missing:
        raise ClusterError(
            f"--engine slurm needs {' and '.join(missing)}, not found here; start it on a login node of a "
            "Slurm cluster, or leave --engine out to run on this machine."
        )


@dataclass(frozen=True)
class Partition:
    """A partition: whether it is the default one, and its times in minutes, 0 for none."""

    name: str
    default: bool
    usual: int
    most: int


def partitions() -> dict[str, Partition]:
    """All that a user can see, by name."""
    found = {}
    for line in ask("sinfo", "--noheader", "--format=%P|%L|%l").splitlines():
        name, usual, most = line.split("|")
        plain = name.strip().rstrip("*")
        found[plain] = Partition(plain, name.strip().endswith("*"), _minutes(usual), _minutes(most))
    return found


def _minutes(text: str) -> int:
    """A time of ``sinfo``; 0 where it names none, or has no end."""
    return minutes_of(text) if is_time(text) else 0


def settle_resources(asked: Resources) -> Resources:
    """The same with a time limit; a partition or time that the cluster has not is refused."""
    known = partitions()
    names = (
        asked.partition.split(",") if asked.partition else [one.name for one in known.values() if one.default]
    )
    for name in names:
        if name not in known:
            raise ClusterError(
                f"got --partition {name!r}, which this cluster has not; it has {', '.join(known) or 'none'}."
            )
    if not names:
        raise ClusterError(
            f"This cluster has no default partition; give --partition, one of {', '.join(known)}."
        )
    most = max((known[name].most or sys.maxsize) for name in names)
    if asked.minutes > most:
        raise ClusterError(
            f"got --time of {asked.minutes} minutes; the partition {','.join(names)} allows {most}: ask for "
            "less, and a run that takes longer goes on in another job."
        )
    first = known[names[0]]
    return replace(asked, minutes=asked.minutes or first.usual or first.most or DAY)


def nodes() -> set[str]:
    """The machines of the cluster."""
    return {line.strip() for line in ask("sinfo", "--noheader", "-N", "--format=%n").splitlines()}


def check_visible(paths: Iterable[Path], machines: set[str]) -> None:
    """Refuse a path that other machines of the cluster cannot see, as far as that is known here."""
    here = {socket.gethostname(), socket.gethostname().partition(".")[0], "localhost"}
    if machines <= here:
        return
    private = [Path(name).resolve() for name in (*OF_ONE_MACHINE, tempfile.gettempdir())]
    for path in paths:
        if any(path.resolve().is_relative_to(folder) for folder in private):
            raise ClusterError(
                f"{path} is in a folder that every machine has for itself, so the nodes of the cluster cannot "
                "see it; move it to a file system that they share, such as your home folder."
            )


def array_limit() -> int:
    """How many jobs an array may have."""
    match = re.search(r"^MaxArraySize\s*=\s*(\d+)", ask("scontrol", "show", "config"), re.MULTILINE)
    return max(1, int(match[1])) if match else 1000


@dataclass(frozen=True)
class JobState:
    """What the queue says of a job: its id, its state, and why it waits."""

    job: str
    state: str
    reason: str

    @property
    def over(self) -> bool:
        return self.state in OVER


Place = tuple[str, int]
"""The name of a submission, and an index in it."""


def states_of(names: Sequence[str]) -> dict[Place, JobState]:
    """The jobs of these names that the queue knows; those that have ended stay there for some minutes."""
    if not names:
        return {}
    columns = "--format=%j|%F|%K|%T|%r"
    lines = ask("squeue", "--noheader", "--array", "--states=all", f"--name={','.join(names)}", columns)
    found = {}
    for line in lines.splitlines():
        name, job, index, state, reason = line.split("|", 4)
        found[name, int(index) if index.isdigit() else 0] = JobState(job, state, reason)
    return found


class Refused(ClusterError):
    """Slurm did not take a submission."""

    @property
    def too_many(self) -> bool:
        """Whether fewer jobs may be taken: there are limits for users, too."""
        return re.search(r"submit.*limit", str(self), re.IGNORECASE) is not None


def submit(name: str, folder: Path, tasks: Sequence[Callable[[], str]], asked: Resources) -> str:
    """Submit tasks as one array, or a single one as a job; returns its id.

    Args:
        name: of the job.
        folder: for its script, its pickles and its logs; it goes when Slurm refuses.
        tasks: what to call; they are pickled.
        asked: for each.
    """
    import submitit
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    executor = submitit.SlurmExecutor(folder=folder, max_num_timeout=MOST_LIMITS)
    executor.update_parameters(
        job_name=name,
        time=asked.minutes,
        cpus_per_task=asked.cpus,
        srun_args=[f"--cpus-per-task={asked.cpus}"],  # since Slurm 22.05 srun does not take it from sbatch
        signal_delay_s=asked.delay,
        array_parallelism=asked.parallel or len(tasks),
        stderr_to_stdout=True,
        wckey=None,
        additional_parameters=asked.options(),
    )
    try:
        with outside_job(), redirect_stderr(io.StringIO()):
            jobs = executor.submit_array(list(tasks))
    except (FailedJobError, FailedSubmissionError, OSError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise Refused(f"Slurm refused the jobs ({_first(str(error))}); change what is asked for.") from error
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
