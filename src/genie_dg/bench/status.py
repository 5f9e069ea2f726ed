"""How far the runs of a sweep are: done, running, failed with the reason, stopped half-way, or missing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from genie_dg.files import is_locked, read_lines, read_whole
from genie_dg.runs import folder as files
from genie_dg.runs.read import seconds
from genie_dg.runs.record import RunConfig
from genie_dg.runs.sweep_list import FOLDER, read_list, write_list

Kind = Literal["done", "running", "failed", "stopped", "missing"]
KINDS: tuple[Kind, ...] = ("done", "running", "failed", "stopped", "missing")


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


def remembered(out: Path) -> dict[str, list[RunConfig]]:
    """The runs of every sweep that was started into a folder, by the sweep's name."""
    lists = [read_list(file) for file in sorted((out / FOLDER).glob("*.json"))]
    return {data["name"]: configs for data, configs in lists}


def state_of(config: RunConfig, runs: Path) -> State:
    """The state of one run, from its folder alone.

    A run is *running* while a process holds its lock, *failed* when its last attempt left a reason and no
    process is at it, *stopped* when it has a checkpoint that nobody continues.
    """
    folder = runs / config.run_id
    if not folder.is_dir():
        return State(config, "missing")
    timings = seconds(str(folder))
    steps, spent = max(timings, default=-1) + 1, sum(timings.values())
    if files.is_done(folder):
        return State(config, "done", steps if config.early_stop else config.steps, spent)
    if is_locked(folder / files.LOCK):
        return State(config, "running", steps, spent)
    failures, _ = read_lines(folder / files.FAILURES)
    if failures:
        return State(config, "failed", steps, spent, str(failures[-1].get("reason", "no reason given")))
    return State(config, "stopped" if files.has_checkpoint(folder) else "missing", steps, spent)


def time_left(states: Sequence[State], workers: int) -> float | None:
    """Seconds until all runs are done at the pace so far, with ``workers`` at a time; ``None`` without a pace.

    The pace is the mean of seconds a step over all runs that have taken steps, whatever they train.
    """
    steps, seconds = sum(s.steps for s in states), sum(s.seconds for s in states)
    if not steps:
        return None
    left = sum(s.config.steps - s.steps for s in states if s.kind != "done")
    return left * seconds / steps / max(1, workers)


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
        if config.dataset in found or not meta.is_file():
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
