"""Run a sweep: data sets x algorithms x optimizers x test domains x draws x trials, from a TOML file.

The same command again goes on where it was stopped, in whatever way.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genie_dg.bench.options import add_flags, options_from
from genie_dg.check import one_of

from ._shared import require

if TYPE_CHECKING:
    from rich.console import Console

    from genie_dg.bench.engines.queue import Event, EventReport, Outcome
    from genie_dg.bench.sweep import Plan

ENGINES = ("local", "ray", "here")


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"got {text!r}, but it must be a whole number")
    return int(text)


SHOWN = 6
"""Measurements that an estimate lists."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to run, then where."""
    parser.add_argument("file", type=Path, help="the TOML file of the sweep")
    parser.add_argument(
        "--dry-run", action="store_true", help="say how many runs and hours it is, start nothing"
    )
    parser.add_argument(
        "--workers", type=_count, default=0, help="runs at a time (default: one for each GPU, or for each core)"
    )
    parser.add_argument(
        "--retries", type=_count, default=1, help="for a run that failed (default: %(default)s)"
    )
    parser.add_argument("--engine", default="local", help="local, ray or here (default: %(default)s)")
    parser.add_argument("--address", default="", help="of a Ray cluster (default: start one on this machine)")
    parser.add_argument("--cpus", type=float, help="of each run on Ray (default: its threads)")
    parser.add_argument("--gpus", type=float, default=0.0, help="of each run on Ray (default: %(default)s)")
    parser.add_argument(
        "--threads", type=int, help="of each run; another number, other last digits (default: the file's, or 1)"
    )
    add_flags(parser, "sweep")


def run(arguments: argparse.Namespace) -> int:
    """Plan, say what is ahead, run, report."""
    require("Sweeps", "bench", {"numpy": "numpy", "PIL": "pillow", "rich": "rich", "polars": "polars"})
    one_of("--engine", arguments.engine, ENGINES)
    from rich.console import Console

    from genie_dg.bench.jobs import OpenSets
    from genie_dg.bench.status import remember
    from genie_dg.bench.sweep import plan

    options = options_from(arguments)
    OpenSets().load_plugins(options)
    planned = plan(arguments.file, options)
    console = Console(highlight=False)
    done = sum(job.done for job in planned.jobs)
    steps = sum(job.config.steps for job in planned.jobs if not job.done)
    console.print(
        f"{planned.sweep.name}: {len(planned.jobs)} runs under {planned.sweep.protocol}, {done} done already, "
        f"{steps:,} steps ahead, in {options.out}",
        markup=False,
    )
    workers = arguments.workers or _default_workers(options.device)
    if arguments.dry_run:
        return _estimate(planned, workers, arguments, console)
    remember(planned.sweep.name, [job.config for job in planned.jobs], Path(options.out))
    try:
        with _display(console, planned) as report:
            outcome = _launch(planned, workers, arguments, report)
    except KeyboardInterrupt:
        console.print("Stopped; the same command goes on from the last checkpoints.")
        raise
    for run_id, reason in outcome.failed.items():
        console.print(f"Failed: {run_id}: {reason}", markup=False)
    console.print(f"{len(outcome.done)} of {len(planned.jobs)} runs are done, {len(outcome.failed)} failed.")
    return 1 if outcome.failed else 0


def _default_workers(device: str) -> int:
    import torch

    from genie_dg.bench.engines.local import cores

    return torch.cuda.device_count() or cores() if device in ("", "cuda") else cores()


def _estimate(planned: Plan, workers: int, arguments: argparse.Namespace, console: Console) -> int:
    from genie_dg.bench.engines.local import threads_of
    from genie_dg.bench.status import duration
    from genie_dg.bench.sweep import estimate

    options = options_from(arguments)
    threads = threads_of(options.threads, workers)
    seconds, paces = estimate(planned, options, threads)
    console.print(
        f"About {duration(seconds / workers)} with {workers} at a time, {threads} threads each; "
        f"{duration(seconds)} one after another at this pace."
    )
    if paces:
        console.print("It rests on a few steps of ERM with Adam; algorithms cost different amounts:")
    for pace in paces[:SHOWN]:
        console.print(
            f"  {pace.kind}: {pace.step:.3g} s a step, {pace.evaluation:.3g} s an evaluation", markup=False
        )
    if len(paces) > SHOWN:
        console.print(f"  and {len(paces) - SHOWN} more")
    return 0


def _launch(planned: Plan, workers: int, arguments: argparse.Namespace, report: EventReport) -> Outcome:
    from genie_dg.bench.engines.local import launch, launch_here

    shared: dict[str, Any] = {"retries": arguments.retries, "device": arguments.device, "report": report}
    if arguments.engine == "here":
        return launch_here(planned.jobs, **shared)
    if arguments.engine == "ray":
        from genie_dg.bench.engines.ray import launch_ray

        ray = {name: getattr(arguments, name) for name in ("address", "cpus", "gpus")}
        return launch_ray(planned.jobs, **ray, **shared)
    return launch(planned.jobs, workers, **shared)


@contextmanager
def _display(console: Console, planned: Plan) -> Iterator[EventReport]:
    """A bar over all steps with time left; a line for each run that ends, fails or is tried again."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from genie_dg.bench.status import describe

    configs = {job.config.run_id: job.config for job in planned.jobs}
    behind = {job.config.run_id: job.config.steps if job.done else 0 for job in planned.jobs}
    left = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("steps"))
    columns: tuple[Any, ...] = (*left, TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        total = sum(config.steps for config in configs.values())
        task = progress.add_task("sweep", total=total, completed=sum(behind.values()))
        ended = [sum(job.done for job in planned.jobs)]

        def report(event: Event) -> None:
            behind[event.run] = max(behind[event.run], event.done)
            if event.kind == "done":
                ended[0] += 1
            progress.update(
                task, completed=sum(behind.values()), description=f"{ended[0]} of {len(configs)} runs"
            )
            if event.kind in ("done", "failed", "retry"):
                what = describe(configs[event.run])
                why = f": {event.reason}" if event.reason else ""
                console.print(f"{event.kind:6} {ended[0]:>5} of {len(configs)}  {what}{why}", markup=False)

        yield report
