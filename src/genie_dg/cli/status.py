"""Say how far the sweeps in a folder are: done, running, failed with the reason, missing, time left."""

from __future__ import annotations

import argparse
from pathlib import Path

from genie_dg.check import InputError, folder, printable, whole_number

from ._shared import require, tell_problems


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The folder, and how much to say."""
    parser.add_argument("runs", type=Path, nargs="?", default=Path("runs"), help="(default: %(default)s)")
    parser.add_argument(
        "--workers", type=int, default=0, help="runs at a time, for the time left (default: as many as run now)"
    )
    parser.add_argument("--all", action="store_true", help="a line for every run that is not done")


def run(arguments: argparse.Namespace) -> int:
    """Read the folder; nothing is changed, and no run notices."""
    require("Status", "bench", {"numpy": "numpy", "msgspec": "msgspec"})
    from genie_dg.bench.status import counts, describe, remembered, state_of, time_left

    folder(arguments.runs, "name the folder that genie-dg sweep wrote to (--out)")
    whole_number("--workers", arguments.workers, 0)
    problems: list[str] = []
    sweeps = remembered(arguments.runs, problems)
    tell_problems(problems)
    if not sweeps:
        raise InputError(
            f"{arguments.runs} holds no sweep; start one with genie-dg sweep FILE.toml --out FOLDER."
        )
    for name, configs in sweeps.items():
        left_out: list[str] = []
        states = [state_of(config, arguments.runs, left_out) for config in configs]
        by_kind = ", ".join(f"{count} {kind}" for kind, count in counts(states).items() if count)
        left = time_left(states, arguments.workers)
        print(printable(f"{name}: {len(states)} runs: {by_kind}{f'; {left}' if left else ''}"))
        for state in states:
            if state.kind in ("failed", "unknown") or (arguments.all and state.kind != "done"):
                config = state.config
                why = f": {state.reason}" if state.reason else ""
                steps = f"{state.steps} of {config.steps} steps"
                print(printable(f"  {state.kind:8} {config.run_id}  {describe(config)}, {steps}{why}"))
        if left_out:
            more = f" and {len(left_out) - 1} more like it" if len(left_out) > 1 else ""
            tell_problems([f"{left_out[0].rstrip('.')}{more}."])
    return 0
