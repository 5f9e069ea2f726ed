"""Say how far the sweeps in a folder are: done, running, failed with the reason, missing, time left."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from genie_dg.arguments import MANY, path, whole
from genie_dg.check import InputError, folder, printable

from ._shared import tell_problems, to_json

if TYPE_CHECKING:
    from genie_dg.bench.status import State

Names = Mapping[str, Sequence[str]]
"""For each data set the names of its domains."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The folder, and how much to say."""
    parser.add_argument("runs", type=path, nargs="?", default=Path("runs"), help="(default: %(default)s)")
    parser.add_argument(
        "--workers",
        type=whole(0, MANY),
        default=0,
        help="runs at a time, for the time left (default: as many as run now)",
    )
    parser.add_argument("--all", action="store_true", help="a line for every run that is not done")
    parser.add_argument("--json", action="store_true", help="one JSON document with every run, for programs")


def run(arguments: argparse.Namespace) -> int:
    """Read the folder; nothing is changed, and no run notices."""
    from genie_dg.bench.status import domain_names, remembered, state_of, submitted_jobs

    folder(arguments.runs, "name the folder that genie-dg sweep wrote to (--out)")
    problems: list[str] = []
    sweeps = remembered(arguments.runs, problems)
    tell_problems(problems)
    if not sweeps:
        raise InputError(
            f"{arguments.runs} holds no sweep; start one with genie-dg sweep FILE.toml --out FOLDER."
        )
    documents = []
    for name, configs in sweeps.items():
        left_out: list[str] = []
        jobs = submitted_jobs(name, arguments.runs, left_out)
        states = [state_of(config, arguments.runs, left_out, jobs.get(config.run_id)) for config in configs]
        names = domain_names(configs, arguments.runs)
        if arguments.json:
            documents.append(_document(name, states, names, arguments.workers))
        else:
            _print(name, states, names, arguments)
        if left_out:
            more = f" and {len(left_out) - 1} more like it" if len(left_out) > 1 else ""
            tell_problems([f"{left_out[0].rstrip('.')}{more}."])
    if arguments.json:
        print(to_json({"sweeps": documents}))
    return 0


def _print(name: str, states: list[State], names: Names, arguments: argparse.Namespace) -> None:
    from genie_dg.bench.status import counts, describe, time_left

    by_kind = ", ".join(f"{count} {kind}" for kind, count in counts(states).items() if count)
    left = time_left(states, arguments.workers)
    print(printable(f"{name}: {len(states)} runs: {by_kind}{f'; {left}' if left else ''}"))
    for state in states:
        if state.kind in ("failed", "unknown") or (arguments.all and state.kind != "done"):
            config = state.config
            why = f": {state.reason}" if state.reason else ""
            steps = f"{state.steps} of {config.steps} steps"
            what = describe(config, names.get(config.dataset, ()))
            print(printable(f"  {state.kind:8} {config.run_id}  {what}, {steps}{why}"))


def _document(name: str, states: list[State], names: Names, workers: int) -> dict[str, object]:
    from genie_dg.bench.status import counts, time_left

    runs = [
        {
            "run": state.config.run_id,
            "state": state.kind,
            "steps": state.steps,
            "of": state.config.steps,
            "seconds": state.seconds,
            "reason": state.reason,
            "dataset": state.config.dataset,
            "algorithm": state.config.algorithm,
            "optimizer": state.config.optimizer,
            "test_domains": list(state.config.test_domains),
            "test_domain_names": [
                listed[k]
                for k in state.config.test_domains
                if k < len(listed := names.get(state.config.dataset, ()))
            ],
            "trial": state.config.trial_seed,
            "draw": state.config.hparams_seed,
        }
        for state in states
    ]
    left = time_left(states, workers)
    seconds = None if left is None else left.seconds
    return {"name": name, "counts": counts(states), "seconds_left": seconds, "runs": runs}
