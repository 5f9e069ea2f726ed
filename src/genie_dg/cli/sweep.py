"""Run a sweep: data sets x algorithms x optimizers x test domains x draws x trials, from a TOML file.

The same command again goes on where it was stopped, in whatever way.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from genie_dg.arguments import MANY, path, some_text, whole
from genie_dg.bench.engines.registry import ENGINES, add_engine_flags, engine_flags
from genie_dg.bench.options import add_flags, options_from
from genie_dg.check import printable

from ._shared import console_of, progress_bar

if TYPE_CHECKING:
    from rich.console import Console

    from genie_dg.bench.engines.engine import Engine, Tell, Update
    from genie_dg.bench.options import RunOptions
    from genie_dg.bench.sweep import Plan

_SHOWN = 6
"""Measurements that an estimate lists."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to run, then where."""
    parser.add_argument("file", type=path, help="the TOML file of the sweep")
    parser.add_argument(
        "--dry-run", action="store_true", help="say how many runs and hours it is, start nothing"
    )
    parser.add_argument(
        "--workers",
        type=whole(0, MANY),
        default=0,
        help="runs at a time (default: one for each GPU, or for each core)",
    )
    parser.add_argument(
        "--retries", type=whole(0, 1000), default=1, help="for a run that failed (default: %(default)s)"
    )
    parser.add_argument(
        "--engine", default="local", type=some_text, help=f"{', '.join(ENGINES)} (default: %(default)s)"
    )
    add_engine_flags(parser)
    parser.add_argument(
        "--threads",
        type=whole(1, MANY),
        help="of each run; another number, other last digits (default: the file's, or 1)",
    )
    parser.add_argument("--quiet", action="store_true", help="say nothing but what failed")
    add_flags(parser, "sweep")


def run(arguments: argparse.Namespace) -> int:
    """Plan, say what is ahead, run, report."""
    began = time.perf_counter()
    from genie_dg.protocols.sweep import load_sweep

    row = ENGINES[arguments.engine]
    flags = engine_flags(arguments, row.name)
    options = options_from(arguments)
    sweep, console = load_sweep(arguments.file), console_of(arguments.quiet)
    named = [str((arguments.file.parent / name).resolve()) for name in sweep.plugins]
    options = replace(options, plugin=tuple(dict.fromkeys((*options.plugin, *named))))
    if arguments.dry_run:
        planned = _plan(arguments, options, console)
        return _estimate(planned, 1 if row.one_by_one else arguments.workers, options, began, console)
    from genie_dg.bench.engines.engine import EngineOptions
    from genie_dg.bench.engines.registry import build_engine

    def say(text: str) -> None:
        console.print(printable(text), markup=False)

    engine = build_engine(
        row.name, EngineOptions(arguments.workers, options.device, sweep.name, say, flags)
    )  # its workers begin to import while this process does
    return _launch(_plan(arguments, options, console), engine, arguments, console)


def _plan(arguments: argparse.Namespace, options: RunOptions, console: Console) -> Plan:
    from genie_dg.bench.jobs import OpenSets
    from genie_dg.bench.sweep import plan

    OpenSets().load_plugins(options)
    planned = plan(arguments.file, options, arguments.threads)
    done = sum(job.done for job in planned.jobs)
    steps = sum(job.config.steps for job in planned.jobs if not job.done)
    console.print(
        f"{planned.sweep.name}: {len(planned.jobs)} runs under {planned.sweep.protocol}, {done} done already, "
        f"{steps:,} steps ahead, in {options.out}",
        markup=False,
    )
    return planned


def _launch(planned: Plan, engine: Engine, arguments: argparse.Namespace, console: Console) -> int:
    from genie_dg.bench.engines.launch import launch
    from genie_dg.runs.sweep_list import write_list

    configs = [job.config for job in planned.jobs]
    out = Path(planned.jobs[0].options.out)
    write_list(out, planned.sweep.name, configs, arguments.file, planned.protocol)
    try:
        with _display(console, planned) as report:
            launched = launch(planned.jobs, engine, retries=arguments.retries, report=report)
    except KeyboardInterrupt:
        console.print("Stopped; the same command goes on from the last checkpoints.")
        raise
    failed = console_of()
    for run_id, reason in launched.failed.items():
        failed.print(printable(f"Failed: {run_id}: {reason}"), markup=False)
    console.print(f"{len(launched.done)} of {len(planned.jobs)} runs are done, {len(launched.failed)} failed.")
    return 1 if launched.failed else 0


def _estimate(planned: Plan, workers: int, options: RunOptions, began: float, console: Console) -> int:
    from genie_dg.bench.engines.local import default_workers, devices_for
    from genie_dg.bench.status import duration
    from genie_dg.bench.sweep import estimate_sweep
    from genie_dg.runtime import cores

    start = time.perf_counter() - began + planned.opening  # a worker opens the data as well
    threads = planned.sweep.threads
    workers = workers or default_workers(options.device, threads)
    estimate = estimate_sweep(planned, options)
    shared = cores() if devices_for(1, options.device) == ["cpu"] else 0
    together, alone = (duration(estimate.seconds(count, threads, shared, start)) for count in (workers, 1))
    each = "1 thread" if threads == 1 else f"{threads} threads"
    console.print(f"About {together} with {workers} at a time, {each} each; {alone} one after another.")
    if estimate.paces:
        console.print(
            f"It rests on {start:.2g} s to start, and on a few steps and an evaluation of each shape of run, "
            "timed just now; other optimizers count by their passes:"
        )
    for pace in estimate.paces[:_SHOWN]:
        times = f"{pace.step:.3g} s a step, {pace.evaluation:.3g} s an evaluation, {pace.start:.3g} s to begin"
        console.print(printable(f"  {pace.kind}: {times}"), markup=False)
    if len(estimate.paces) > _SHOWN:
        console.print(f"  and {len(estimate.paces) - _SHOWN} more")
    return 0


@contextmanager
def _display(console: Console, planned: Plan) -> Iterator[Tell]:
    """A bar over all steps with time left; a line for each run that ends, fails or is tried again."""
    from genie_dg.bench.status import RunState, describe_run

    configs = {job.config.run_id: job.config for job in planned.jobs}
    steps = {job.config.run_id: job.config.steps if job.done else 0 for job in planned.jobs}
    total = sum(config.steps for config in configs.values())
    with progress_bar("sweep", total, console, "steps") as bar:
        ended = sum(job.done for job in planned.jobs)
        bar(done=sum(steps.values()))

        def report(update: Update) -> None:
            nonlocal ended
            steps[update.run] = max(steps[update.run], update.steps)
            ended += update.state is RunState.done
            bar(done=sum(steps.values()), text=f"{ended} of {len(configs)} runs")
            if not update.headline:
                return
            config = configs[update.run]
            what = describe_run(config, [domain.name for domain in planned.data[config.dataset].domains])
            why = f": {update.reason}" if update.reason else ""
            line = f"{update.headline:6} {ended:>5} of {len(configs)}  {what}{why}"
            console.print(printable(line), markup=False)

        yield report
