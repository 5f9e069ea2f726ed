"""Say how far the sweeps in a folder are: done, running, failed with the reason, missing, time left."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from genie_dg.arguments import path
from genie_dg.check import InputError, folder, printable

from ._shared import tell_problems, to_json

if TYPE_CHECKING:
    from genie_dg.bench.status import RunStatus

Names = Mapping[str, Sequence[str]]
"""For each data set the names of its domains."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The folder, and how much to say."""
    parser.add_argument("runs", type=path, nargs="?", default=Path("runs"), help="(default: %(default)s)")
    parser.add_argument("--all", action="store_true", help="a line for every run that is not done")
    parser.add_argument("--json", action="store_true", help="one JSON document with every run, for programs")


def run(arguments: argparse.Namespace) -> int:
    """Read the folder; nothing is changed, and no run notices."""
    from genie_dg.bench.status import domain_names, read_sweeps, status_of
    from genie_dg.runs.submissions import last_jobs, read_submissions

    folder(arguments.runs, "name the folder that genie-dg sweep wrote to (--out)")
    problems: list[str] = []
    sweeps = read_sweeps(arguments.runs, problems)
    tell_problems(problems)
    if not sweeps:
        raise InputError(
            f"{arguments.runs} holds no sweep; start one with genie-dg sweep FILE.toml --out FOLDER."
        )
    documents = []
    for name, configs in sweeps.items():
        left_out: list[str] = []
        jobs = last_jobs(read_submissions(arguments.runs, name, left_out))
        statuses = [status_of(config, arguments.runs, left_out, jobs.get(config.run_id)) for config in configs]
        names = domain_names(configs, arguments.runs)
        if arguments.json:
            documents.append(_document(name, statuses, names))
        else:
            _print(name, statuses, names, arguments.all)
        if left_out:
            more = f" and {len(left_out) - 1} more like it" if len(left_out) > 1 else ""
            tell_problems([f"{left_out[0].rstrip('.')}{more}."])
    if arguments.json:
        print(to_json({"sweeps": documents}))
    return 0


def _print(name: str, statuses: list[RunStatus], names: Names, every: bool) -> None:
    from genie_dg.bench.status import RunState, count_states, describe_run, remaining_time

    counted = ", ".join(f"{count} {state.value}" for state, count in count_states(statuses).items() if count)
    left = remaining_time(statuses)
    print(printable(f"{name}: {len(statuses)} runs: {counted}{f'; {left}' if left else ''}"))
    for one in statuses:
        shown = one.state in (RunState.failed, RunState.unknown)
        if shown or (every and one.state is not RunState.done):
            config = one.config
            why = f": {one.reason}" if one.reason else ""
            what = describe_run(config, names.get(config.dataset, ()))
            steps = f"{one.steps} of {config.steps} steps"
            print(printable(f"  {one.state.value:8} {config.run_id}  {what}, {steps}{why}"))


def _document(name: str, statuses: list[RunStatus], names: Names) -> dict[str, object]:
    from genie_dg.bench.status import count_states, remaining_time

    left = remaining_time(statuses)
    return {
        "name": name,
        "counts": {state.value: count for state, count in count_states(statuses).items()},
        "seconds_left": None if left is None else left.seconds,
        "runs": [_run(one, names.get(one.config.dataset, ())) for one in statuses],
    }


def _run(status: RunStatus, domains: Sequence[str]) -> dict[str, object]:
    config = status.config
    return {
        "run": config.run_id,
        "state": status.state.value,
        "steps": status.steps,
        "of": config.steps,
        "seconds": status.seconds,
        "reason": status.reason,
        "dataset": config.dataset,
        "algorithm": config.algorithm,
        "optimizer": config.optimizer,
        "test_domains": list(config.test_domains),
        "test_domain_names": [domains[k] for k in config.test_domains if k < len(domains)],
        "trial": config.trial_seed,
        "draw": config.hparams_seed,
    }
