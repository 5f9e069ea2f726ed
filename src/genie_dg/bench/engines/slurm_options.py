"""What a run asks Slurm for: times as Slurm writes them, options of sbatch, and all of it as one record."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from .queue import ClusterError

OURS = ("array", "error", "job-name", "nodes", "ntasks", "open-mode", "output", "requeue", "signal", "wrap")
"""Options of sbatch that this engine sets itself."""
FLAGS = {"partition": "--partition", "time": "--time", "gpus": "--gpus", "cpus-per-task": "--cpus"}
"""Options of sbatch that have a flag of their own here."""

_DAYS = re.compile(r"(?:(\d{1,4})-)?(\d{1,6})(?::(\d{1,6}))?(?::(\d{1,6}))?")


def is_time(text: str) -> bool:
    """Whether Slurm would take it for a time; ``infinite`` and ``n/a`` are none."""
    return _DAYS.fullmatch(text.strip()) is not None


def minutes_of(text: str) -> int:
    """A time as Slurm writes it, in whole minutes: ``MM``, ``MM:SS``, ``HH:MM:SS``, ``D-HH``, ``D-HH:MM:SS``.

    >>> minutes_of("90"), minutes_of("2:00:00"), minutes_of("1-12"), minutes_of("0:30")
    (90, 120, 2160, 1)
    """
    match = _DAYS.fullmatch(text.strip())
    if not match:
        raise ClusterError(f"got --time {text!r}; expected minutes, HH:MM:SS or D-HH:MM:SS, such as 4:00:00.")
    days, *parts = (int(part) if part else None for part in match.groups())
    first, second, third = ((part or 0) for part in parts)
    if days is not None:
        seconds = ((days * 24 + first) * 60 + second) * 60 + third
    elif parts[2] is not None:
        seconds = (first * 60 + second) * 60 + third
    else:
        seconds = first * 60 + second
    if seconds == 0:
        raise ClusterError(f"got --time {text!r}; expected more than nothing, such as 4:00:00.")
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
        if not re.fullmatch(r"[a-z][a-z-]*", key) or (equals and not value):
            raise ClusterError(f"got --slurm {word!r}; expected an option of sbatch, such as mem=8G.")
        if key in FLAGS:
            raise ClusterError(f"got --slurm {word!r}; this option has a flag of its own: {FLAGS[key]}.")
        if key in OURS or key.startswith(("ntasks", "no-requeue")):
            raise ClusterError(f"got --slurm {word!r}; a sweep sets {', '.join(OURS)} itself: leave it out.")
        options[key] = value if equals else True
    return options


@dataclass(frozen=True)
class Resources:
    """What each run asks Slurm for.

    Args:
        partition: where; empty for the cluster's default.
        minutes: after which Slurm ends a job, which then goes on as another one; 0 for what the partition
            allows.
        cpus: of a run; 0 for as many as it has threads.
        gpus: of a run.
        parallel: runs of one array at a time; 0 for as many as the cluster takes.
        more: other options of sbatch.
    """

    partition: str = ""
    minutes: int = 0
    cpus: int = 0
    gpus: int = 0
    parallel: int = 0
    more: Mapping[str, str | bool] = field(default_factory=dict)

    def with_cpus(self, cpus: int) -> Resources:
        """The same with a number of CPUs."""
        return replace(self, cpus=cpus)

    @property
    def delay(self) -> int:
        """Seconds before the end at which Slurm warns a job."""
        return max(5, min(90, self.minutes * 60 // 5))

    @property
    def signal_after(self) -> int:
        """Seconds after which a warning can be that of the time limit; Slurm may send it a minute early."""
        return self.minutes * 60 - self.delay - 75

    def options(self) -> dict[str, str | bool]:
        """Those of sbatch that submitit has no parameter for, or under another name."""
        options: dict[str, str | bool] = {"requeue": True, **self.more}
        if self.partition:
            options["partition"] = self.partition
        if self.gpus:
            options["gpus-per-node"] = str(self.gpus)
        return options
