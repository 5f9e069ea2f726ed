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
from enum import Enum
from pathlib import Path
from typing import Any

from genie_dg.check import InputError
from genie_dg.files import held_by, read_lines, read_whole, silence
from genie_dg.runs.config import RunConfig
from genie_dg.runs.folder import LOCK, META, TIMINGS, has_checkpoint, is_done
from genie_dg.runs.outcome import Ending, read_outcomes
from genie_dg.runs.sweep_list import FOLDER as SWEEPS
from genie_dg.runs.sweep_list import read_list

SILENT = 5 * 60.0
"""Seconds after which a process on another machine that gave no sign of life is not taken for a running one."""


class RunState(str, Enum):
    """How far a run is."""

    done = "done"
    running = "running"
    submitted = "submitted"
    failed = "failed"
    stopped = "stopped"
    missing = "missing"
    unknown = "unknown"


@dataclass(frozen=True)
class RunStatus:
    """One run: its state, the steps it has behind it, the seconds they took, and the reason for its state."""

    config: RunConfig
    state: RunState
    steps: int = 0
    seconds: float = 0.0
    reason: str = ""


def read_sweeps(out: Path, problems: list[str] | None = None) -> dict[str, list[RunConfig]]:
    """The runs of every sweep that was started into a folder, by the sweep's name.

    Args:
        out: the folder.
        problems: gets a sentence for each list that cannot be read, which is left out.
    """
    sweeps: dict[str, list[RunConfig]] = {}
    problems = [] if problems is None else problems
    folder = out / SWEEPS
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".json"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        problems.append(f"{folder} cannot be read ({error.strerror}); its sweeps are left out.")
        return {}
    for name in names:
        try:
            data, configs = read_list(folder / name)
            sweeps[data["name"]] = configs
        except InputError as error:
            what = str(error).partition(";")[0]
            problems.append(f"{what}; it is left out: start the sweep again to repair it.")
    return sweeps


def seconds_by_step(folder: Path, problems: list[str] | None = None) -> dict[int, float]:
    """For each record of a run its step, and the seconds since the record before."""
    lines, unread = read_lines(folder / TIMINGS)
    if problems is not None:
        problems += unread
    read = ((line.get("step"), line.get("seconds")) for line in lines)
    return {k: float(x) for k, x in read if isinstance(k, int) and isinstance(x, int | float) and x >= 0}


def status_of(
    config: RunConfig, runs: Path, problems: list[str] | None = None, submitted: tuple[str, str] | None = None
) -> RunStatus:
    """The status of one run, from files alone.

    A run is *running* while a process of this machine holds its lock, or one of another machine does that gave
    a sign of life in the last minutes. It is *submitted* when it was given to Slurm and that job has not ended
    as far as files tell, *failed* when its last attempt failed or diverged and no process is at it, *stopped*
    when it has a checkpoint that nobody continues. It is *unknown* when its folder cannot be read, or
    when a process of another machine had it last.

    Args:
        config: of the run.
        runs: the folder of runs.
        problems: gets a sentence for each file or line that is left out.
        submitted: its last job and when that was submitted, from `genie_dg.runs.submissions.last_jobs`.
    """
    where = "" if submitted is None else f"Slurm job {submitted[0]} of {submitted[1]}"
    folder = runs / config.run_id
    try:
        os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return RunStatus(config, RunState.submitted if submitted else RunState.missing, reason=where)
    except OSError as error:
        return RunStatus(config, RunState.unknown, reason=f"{folder} cannot be read ({error.strerror})")
    timings = seconds_by_step(folder, problems)
    timings = {step: spent for step, spent in timings.items() if step < config.steps}
    steps, spent = max(timings, default=-1) + 1, sum(timings.values())
    if is_done(folder):
        return RunStatus(config, RunState.done, steps if config.early_stop else config.steps, spent)
    if holder := held_by(folder / LOCK):
        if holder.here or silence(folder / LOCK) < SILENT:
            return RunStatus(config, RunState.running, steps, spent)
        if not submitted:
            reason = f"it was taken by {holder}; look there whether it still runs"
            return RunStatus(config, RunState.unknown, steps, spent, reason)
    outcomes = read_outcomes(folder, problems)
    if submitted and all(outcome.job != submitted[0] for outcome in outcomes):
        return RunStatus(config, RunState.submitted, steps, spent, where)
    if outcomes and outcomes[-1].ending in (Ending.failed, Ending.diverged):
        return RunStatus(config, RunState.failed, steps, spent, str(outcomes[-1]) or "no reason given")
    state = RunState.stopped if has_checkpoint(folder) else RunState.missing
    return RunStatus(config, state, steps, spent)


@dataclass(frozen=True)
class RemainingTime:
    """Remaining time of a sweep: its seconds, how many runs are at work at a time, and how many were timed."""

    seconds: float
    workers: int
    timed: int

    def __str__(self) -> str:
        return (
            f"about {duration(self.seconds)} left with {self.workers} at a time, from the timings of "
            f"{self.timed} run{'s' * (self.timed > 1)}"
        )


def remaining_time(statuses: Sequence[RunStatus], workers: int = 0) -> RemainingTime | None:
    """The time until all runs are done at the pace so far; ``None`` when none was timed, or nothing is left.

    A run takes as long for a step as those of its kind (data set, network, batch, algorithm, optimizer) took in
    the mean, or as all that were timed where none of its kind was.

    Args:
        statuses: of all runs.
        workers: runs at a time; by default those that are running, or one.
    """
    timed = [one for one in statuses if one.steps and one.seconds]
    left = [one for one in statuses if one.state is not RunState.done and one.steps < one.config.steps]
    if not timed or not left:
        return None
    by_kind: dict[Any, list[RunStatus]] = {}
    for one in timed:
        by_kind.setdefault(_kind(one.config), []).append(one)
    paces = {kind: _pace(some) for kind, some in by_kind.items()}
    mean = _pace(timed)
    times = [paces.get(_kind(one.config), mean) * (one.config.steps - one.steps) for one in left]
    at_work = workers or max(1, sum(one.state is RunState.running for one in statuses))
    return RemainingTime(makespan(times, at_work), at_work, len(timed))


def _pace(statuses: Sequence[RunStatus]) -> float:
    """Seconds of a step."""
    return sum(one.seconds for one in statuses) / sum(one.steps for one in statuses)


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


def count_states(statuses: Sequence[RunStatus]) -> dict[RunState, int]:
    """How many runs are in each state."""
    counted = Counter(one.state for one in statuses)
    return {state: counted[state] for state in RunState}


def describe_run(config: RunConfig, domains: Sequence[str] = ()) -> str:
    """A run in one line, with the names of the domains that it leaves out where they are known.

    >>> describe_run(RunConfig("digits", (1,)), ("0 degrees", "15 degrees"))
    'digits ERM genie without 15 degrees, trial 0, draw 0'
    """
    known = max(config.test_domains, default=0) < len(domains)
    left_out = ", ".join(domains[k] if known else str(k) for k in config.test_domains)
    what = f"{config.dataset} {config.algorithm} {config.optimizer} without {left_out}"
    return f"{what}, trial {config.trial_seed}, draw {config.hparams_seed}"


def domain_names(configs: Sequence[RunConfig], runs: Path) -> dict[str, tuple[str, ...]]:
    """For each data set the names of its domains, as some run of it in a folder has stored them."""
    names: dict[str, tuple[str, ...]] = {}
    for config in configs:
        meta = runs / config.run_id / META
        if config.dataset in names:
            continue
        try:
            listed = json.loads(read_whole(meta))["domains"]
        except (OSError, ValueError, KeyError, TypeError):
            continue  # another run may have a file that can be read
        if isinstance(listed, list) and all(isinstance(one, str) for one in listed):
            names[config.dataset] = tuple(listed)
    return names


def duration(seconds: float) -> str:
    """A duration for people.

    >>> duration(40), duration(900), duration(7200)
    ('40 seconds', '15 minutes', '2.0 hours')
    """
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
