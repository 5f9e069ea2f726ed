"""Run a sweep: data sets x algorithms x optimizers x test domains x draws x trials, from a TOML file.

The same command again goes on where it was stopped, in whatever way.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
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
    from genie_dg.bench.sweep import Plan


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to run, then where."""
    parser.add_argument("file", type=path, help="the TOML file of the sweep")
    parser.add_argument(
        "--dry-run", action="store_true", help="say how many runs and steps it is, start nothing"
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
    from genie_dg.bench.engines.engine import EngineOptions
    from genie_dg.bench.engines.registry import build_engine
    from genie_dg.bench.sweep import plan

    console = console_of(arguments.quiet)

    def say(text: str) -> None:
        console.print(printable(text), markup=False)

    flags = engine_flags(arguments, ENGINES[arguments.engine].name)
    options = options_from(arguments)
    engine = None
    if not arguments.dry_run:  # its workers begin to import while this process does
        engine = build_engine(arguments.engine, EngineOptions(arguments.workers, options.device, say, flags))
    planned = plan(arguments.file, options, arguments.threads)
    done = sum(job.done for job in planned.jobs)
    steps = sum(job.config.steps for job in planned.jobs if not job.done)
    say(
        f"{planned.sweep.name}: {len(planned.jobs)} runs under {planned.sweep.protocol}, {done} done already, "
        f"{steps:,} steps ahead, in {options.out}"
    )
    if engine is None:
        say(_time_ahead(planned, Path(options.out), arguments.workers))
        return 0
    return _launch(planned, engine, arguments, console)


def _time_ahead(planned: Plan, out: Path, workers: int) -> str:
    """How long the sweep will take, where a run of it has been timed."""
    from genie_dg.bench.status import remaining_time, status_of

    left = remaining_time([status_of(job.config, out) for job in planned.jobs], workers)
    if left is not None:
        return f"{str(left).capitalize()}."
    return f"No run of it was timed in {out} yet; once some have run, genie-dg status {out} says the time left."


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
