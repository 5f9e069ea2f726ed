"""How far the runs of a sweep are: done, running, failed with the reason, stopped half-way, or missing.

Everything is read from files, and nothing is written or locked: a look cannot disturb a run.
"""

from __future__ import annotations

import heapq
import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from genie_dg.check import InputError
from genie_dg.files import held_by, read_lines, read_whole, silence
from genie_dg.runs import folder as files
from genie_dg.runs.config import RunConfig
from genie_dg.runs.read import seconds
from genie_dg.runs.submissions import last_jobs, read_submissions
from genie_dg.runs.sweep_list import FOLDER, read_list, write_list

Kind = Literal["done", "running", "submitted", "failed", "stopped", "missing", "unknown"]
KINDS: tuple[Kind, ...] = ("done", "running", "submitted", "failed", "stopped", "missing", "unknown")

SILENT = 5 * 60.0
"""Seconds after which a process on another machine that gave no sign of life is not taken for a running one."""


@dataclass(frozen=True)
class State:
    """One run: its kind, the steps it has behind it, the seconds they took, and why it failed last."""

    config: RunConfig
    kind: Kind
    steps: int = 0
    seconds: float = 0.0
    reason: str = ""


def remember(name: str, configs: Sequence[RunConfig], out: Path) -> None:
    """Write the list of a sweep's runs, so that what is missing is known later."""
    write_list(out, name, configs)


def remembered(out: Path, problems: list[str] | None = None) -> dict[str, list[RunConfig]]:
    """The runs of every sweep that was started into a folder, by the sweep's name.

    Args:
        out: the folder.
        problems: gets a sentence for each list that cannot be read, which is left out.
    """
    sweeps: dict[str, list[RunConfig]] = {}
    told = [] if problems is None else problems
    folder = out / FOLDER
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".json"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        told.append(f"{folder} cannot be read ({error.strerror}); its sweeps are left out.")
        return {}
    for name in names:
        try:
            data, configs = read_list(folder / name)
            sweeps[data["name"]] = configs
        except InputError as error:
            what = str(error).partition(";")[0]
            told.append(f"{what}; it is left out: start the sweep again to repair it.")
    return sweeps


def submitted_jobs(name: str, out: Path, problems: list[str] | None = None) -> dict[str, tuple[str, str]]:
    """For each run of a sweep that was given to Slurm the job id of its last submission, and when that was."""
    return last_jobs(read_submissions(out, name, problems))


def state_of(
    config: RunConfig, runs: Path, problems: list[str] | None = None, submitted: tuple[str, str] | None = None
) -> State:
    """The state of one run, from files alone.

    A run is *running* while a process of this machine holds its lock, or one of another machine does that gave
    a sign of life in the last minutes. It is *submitted* when it was given to Slurm and that job has not ended
    as far as files tell, *failed* when its last attempt left a reason and no process is at it, *stopped* when
    it has a checkpoint that nobody continues. It is *unknown* when its folder cannot be read, or when a process
    of another machine had it last.

    Args:
        config: of the run.
        runs: the folder of runs.
        problems: gets a sentence for each file or line that is left out.
        submitted: its last job and when that was submitted, from `submitted_jobs`.
    """
    where = "" if submitted is None else f"Slurm job {submitted[0]} of {submitted[1]}"
    told = [] if problems is None else problems
    folder = runs / config.run_id
    try:
        os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return State(config, "submitted" if submitted else "missing", reason=where)
    except OSError as error:
        return State(config, "unknown", reason=f"{folder} cannot be read ({error.strerror})")
    told += read_lines(folder / files.TIMINGS)[1]
    timings = {
        step: spent for step, spent in seconds(str(folder)).items() if step < config.steps and spent >= 0
    }
    steps, spent = max(timings, default=-1) + 1, sum(timings.values())
    if files.is_done(folder):
        return State(config, "done", steps if config.early_stop else config.steps, spent)
    if holder := held_by(folder / files.LOCK):
        if holder.here or silence(folder / files.LOCK) < SILENT:
            return State(config, "running", steps, spent)
        if not submitted:
            return State(
                config, "unknown", steps, spent, f"it was taken by {holder}; look there whether it still runs"
            )
    failures, unread = read_lines(folder / files.FAILURES)
    told += unread
    if submitted and all(line.get("job") != submitted[0] for line in failures):
        return State(config, "submitted", steps, spent, where)
    if failures:
        return State(config, "failed", steps, spent, str(failures[-1].get("reason", "no reason given")))
    return State(config, "stopped" if files.has_checkpoint(folder) else "missing", steps, spent)


@dataclass(frozen=True)
class Left:
    """The time that a sweep needs still, how many runs are at work at a time, and how many were timed."""

    seconds: float
    workers: int
    timed: int

    def __str__(self) -> str:
        return (
            f"about {duration(self.seconds)} left with {self.workers} at a time, from the timings of "
            f"{self.timed} run{'s' * (self.timed > 1)}"
        )


def time_left(states: Sequence[State], workers: int = 0) -> Left | None:
    """The time until all runs are done at the pace so far; ``None`` when none was timed, or nothing is left.

    A run takes as long for a step as those of its kind (data set, network, batch, algorithm, optimizer) took in
    the mean, or as all that were timed where none of its kind was.

    Args:
        states: of all runs.
        workers: runs at a time; by default those that are running, or one.
    """
    timed = [state for state in states if state.steps and state.seconds]
    left = [state for state in states if state.kind != "done" and state.steps < state.config.steps]
    if not timed or not left:
        return None
    mean, by_kind = _pace(timed), dict[Any, float]()
    for state in timed:
        if (kind := _kind(state.config)) not in by_kind:
            by_kind[kind] = _pace(other for other in timed if _kind(other.config) == kind)
    times = [by_kind.get(_kind(s.config), mean) * (s.config.steps - s.steps) for s in left]
    at_work = workers or max(1, sum(state.kind == "running" for state in states))
    return Left(makespan(times, at_work), at_work, len(timed))


def _pace(states: Iterable[State]) -> float:
    counted = list(states)
    return sum(state.seconds for state in counted) / sum(state.steps for state in counted)


def _kind(config: RunConfig) -> tuple[Any, ...]:
    return config.dataset, config.backbone, config.batch_size, config.algorithm, config.optimizer


def makespan(times: Iterable[float], workers: int) -> float:
    """When the last of some runs is done, if each of the workers takes the next when it is free.

    >>> makespan([3.0, 3.0, 3.0], 2)
    6.0
    """
    ends = [0.0] * workers
    for seconds_of_run in times:
        heapq.heapreplace(ends, ends[0] + seconds_of_run)
    return max(ends)


def counts(states: Sequence[State]) -> dict[Kind, int]:
    """How many runs are of each kind."""
    by_kind = Counter(state.kind for state in states)
    return {kind: by_kind[kind] for kind in KINDS}


def describe(config: RunConfig, domains: Sequence[str] = ()) -> str:
    """A run in one line, with the names of the domains that it leaves out where they are known.

    >>> describe(RunConfig("digits", (1,)), ("0 degrees", "15 degrees"))
    'digits ERM genie without 15 degrees, trial 0, draw 0'
    """
    known = max(config.test_domains, default=0) < len(domains)
    left_out = ", ".join(domains[k] if known else str(k) for k in config.test_domains)
    what = f"{config.dataset} {config.algorithm} {config.optimizer} without {left_out}"
    return f"{what}, trial {config.trial_seed}, draw {config.hparams_seed}"


def domain_names(configs: Sequence[RunConfig], runs: Path) -> dict[str, tuple[str, ...]]:
    """For each data set the names of its domains, as some run of it in a folder has stored them."""
    found: dict[str, tuple[str, ...]] = {}
    for config in configs:
        meta = runs / config.run_id / files.META
        if config.dataset in found:
            continue
        try:
            listed = json.loads(read_whole(meta))["domains"]
        except (OSError, ValueError, KeyError, TypeError):
            continue  # another run may have a file that can be read
        if isinstance(listed, list) and all(isinstance(name, str) for name in listed):
            found[config.dataset] = tuple(listed)
    return found


def duration(seconds: float) -> str:
    """A duration for people.

    >>> duration(40), duration(900), duration(7200)
    ('40 seconds', '15 minutes', '2.0 hours')
    """
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
