"""Say how far the sweeps in a folder are: done, running, failed with the reason, missing, time left."""

from __future__ import annotations

import argparse
from pathlib import Path

from genie_dg.arguments import MANY, path, whole
from genie_dg.check import InputError, folder

from ._shared import require


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The folder, and how much to say."""
    parser.add_argument("runs", type=path, nargs="?", default=Path("runs"), help="(default: %(default)s)")
    parser.add_argument(
        "--workers", type=whole(1, MANY), default=1, help="runs at a time, for the time left (%(default)s)"
    )
    parser.add_argument("--all", action="store_true", help="a line for every run that is not done")


def run(arguments: argparse.Namespace) -> int:
    """Read the folder; nothing is changed."""
    require("Status", "bench", {"numpy": "numpy", "msgspec": "msgspec"})
    from genie_dg.bench.status import counts, describe, duration, remembered, state_of, time_left

    folder(arguments.runs, "name the folder that genie-dg sweep wrote to (--out)")
    sweeps = remembered(arguments.runs)
    if not sweeps:
        raise InputError(
            f"{arguments.runs} holds no sweep; start one with genie-dg sweep FILE.toml --out FOLDER."
        )
    for name, configs in sweeps.items():
        states = [state_of(config, arguments.runs) for config in configs]
        by_kind = ", ".join(f"{count} {kind}" for kind, count in counts(states).items() if count)
        left = time_left(states, arguments.workers)
        ahead = any(state.kind != "done" for state in states)
        when = f"; about {duration(left)} left with {arguments.workers} at a time" if left and ahead else ""
        print(f"{name}: {len(states)} runs: {by_kind}{when}")
        for state in states:
            if state.kind == "failed" or (arguments.all and state.kind != "done"):
                config = state.config
                why = f": {state.reason}" if state.reason else ""
                steps = f"{state.steps} of {config.steps} steps"
                print(f"  {state.kind:8} {config.run_id}  {describe(config)}, {steps}{why}")
    return 0
