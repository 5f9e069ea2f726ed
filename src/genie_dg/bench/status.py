"""How far the runs of a sweep are: done, running, failed with the reason, stopped half-way, or missing."""

from __future__ import annotations

import fcntl
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from genie_dg.check import InputError
from genie_dg.runs import folder as disk
from genie_dg.runs.record import RunConfig, canonical, from_mapping

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
    folder = out / "sweeps"
    folder.mkdir(parents=True, exist_ok=True)
    runs = [json.loads(canonical(config)) for config in configs]
    disk.write_json(folder / f"{name}.json", {"name": name, "runs": runs})


def remembered(out: Path) -> dict[str, list[RunConfig]]:
    """The runs of every sweep that was started into a folder, by the sweep's name."""
    found = {}
    for file in sorted((out / "sweeps").glob("*.json")):
        try:
            data = json.loads(file.read_bytes())
            found[str(data["name"])] = [from_mapping(run) for run in data["runs"]]
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{file} is no list of runs ({error}); start the sweep again to mend it."
            ) from error
    return found


def state_of(config: RunConfig, runs: Path) -> State:
    """The state of one run, from its folder alone.

    A run is *running* while a process holds its lock, *failed* when its last attempt left a reason and no
    process is at it, *stopped* when it has a checkpoint that nobody continues.
    """
    folder = runs / config.run_id
    if not folder.is_dir():
        return State(config, "missing")
    steps, seconds = _timings(folder / disk.TIMINGS)
    if (folder / disk.DONE).exists():
        return State(config, "done", config.steps, seconds)
    if _held(folder / disk.LOCK):
        return State(config, "running", steps, seconds)
    reason = _last_reason(folder / disk.FAILURES)
    if reason:
        return State(config, "failed", steps, seconds, reason)
    return State(config, "stopped" if (folder / disk.CHECKPOINT).exists() else "missing", steps, seconds)


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
    found = Counter(state.kind for state in states)
    return {kind: found[kind] for kind in KINDS}


def _lines(path: Path) -> list[dict[str, object]]:
    """The whole lines of a JSONL file; a torn last line is left out."""
    if not path.exists():
        return []
    found = []
    for line in path.read_bytes().splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:  # a line that a killed process did not finish
            continue
    return found


def _timings(path: Path) -> tuple[int, float]:
    """Steps and seconds; a step that was done twice counts once, with its last time."""
    latest = {int(str(line["step"])): float(str(line["seconds"])) for line in _lines(path)}
    return (max(latest) + 1, sum(latest.values())) if latest else (0, 0.0)


def _last_reason(path: Path) -> str:
    lines = _lines(path)
    return str(lines[-1]["reason"]) if lines else ""


def _held(path: Path) -> bool:
    """Whether a process holds the lock."""
    if not path.exists():
        return False
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False
