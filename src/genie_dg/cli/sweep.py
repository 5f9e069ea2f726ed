"""Run a sweep: data sets x algorithms x optimizers x test domains x draws x trials, from a TOML file.

The same command again goes on where it was stopped, in whatever way.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genie_dg.arguments import MANY, MOST, path, real, some_text, whole
from genie_dg.bench.options import add_flags, options_from
from genie_dg.check import InputError, one_of, printable

from ._shared import console_of, default_workers, progress_bar

if TYPE_CHECKING:
    from rich.console import Console

    from genie_dg.bench.engines.queue import Event, EventReport, Outcome
    from genie_dg.bench.engines.server import WorkerServer
    from genie_dg.bench.engines.slurm_options import Resources
    from genie_dg.bench.options import RunOptions
    from genie_dg.bench.sweep import Plan

ENGINES = ("local", "ray", "slurm", "here")

OF_ENGINE = {
    "address": "ray",
    "partition": "slurm",
    "time": "slurm",
    "array_parallelism": "slurm",
    "slurm": "slurm",
}
"""Arguments that only one engine understands."""

SHOWN = 6
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
        "--engine", default="local", type=some_text, help="local, ray, slurm or here (default: %(default)s)"
    )
    parser.add_argument(
        "--address", type=some_text, help="of a Ray cluster (default: start one on this machine)"
    )
    parser.add_argument("--cpus", type=real(0, MANY), help="of each run on a cluster (default: its threads)")
    parser.add_argument(
        "--gpus", type=real(0, MANY), default=0.0, help="of each run on a cluster (default: %(default)s)"
    )
    _add_slurm(parser)
    parser.add_argument(
        "--threads",
        type=whole(1, MANY),
        help="of each run; another number, other last digits (default: the file's, or 1)",
    )
    parser.add_argument("--quiet", action="store_true", help="say nothing but what failed")
    add_flags(parser, "sweep")


def _add_slurm(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--partition", type=some_text, help="of Slurm (default: the cluster's)")
    parser.add_argument(
        "--time",
        type=some_text,
        help="limit of a Slurm job, such as 4:00:00; a run goes on after it (default: the partition's)",
    )
    parser.add_argument(
        "--array-parallelism",
        type=whole(1, MOST),
        metavar="RUNS",
        help="of a Slurm array at a time (default: as many as the cluster takes)",
    )
    parser.add_argument(
        "--slurm",
        action="append",
        type=some_text,
        metavar="KEY=VALUE",
        help="any other option of sbatch, such as mem=8G or account=NAME; may be given several times",
    )


def run(arguments: argparse.Namespace) -> int:
    """Plan, say what is ahead, run, report."""
    began = time.perf_counter()
    one_of("--engine", arguments.engine, ENGINES)
    for name, engine in OF_ENGINE.items():
        if getattr(arguments, name) and arguments.engine != engine:
            flag = f"--{name.replace('_', '-')}"
            raise InputError(f"{flag} is for --engine {engine}; give that with it, or leave it out.")
    with _server(arguments) as server:
        return _run(arguments, server, began)


def _server(arguments: argparse.Namespace) -> AbstractContextManager[WorkerServer | None]:
    """The process of the workers: it imports what they need while this one imports and plans."""
    from genie_dg.bench.engines.server import WorkerServer

    needed = arguments.engine == "local" and not arguments.dry_run and arguments.file.is_file()
    return WorkerServer() if needed else nullcontext()


def _run(arguments: argparse.Namespace, server: WorkerServer | None, began: float) -> int:
    from genie_dg.bench.jobs import OpenSets
    from genie_dg.bench.status import remember
    from genie_dg.bench.sweep import plan
    from genie_dg.protocols.sweep import load_sweep

    options = options_from(arguments)
    slurm = _resources(arguments) if arguments.engine == "slurm" and not arguments.dry_run else None
    named = [str((arguments.file.parent / name).resolve()) for name in load_sweep(arguments.file).plugins]
    options = replace(options, plugin=tuple(dict.fromkeys((*options.plugin, *named))))
    OpenSets().load_plugins(options)
    planned = plan(arguments.file, options, arguments.threads)
    console = console_of(arguments.quiet)
    done = sum(job.done for job in planned.jobs)
    steps = sum(job.config.steps for job in planned.jobs if not job.done)
    console.print(
        f"{planned.sweep.name}: {len(planned.jobs)} runs under {planned.sweep.protocol}, {done} done already, "
        f"{steps:,} steps ahead, in {options.out}",
        markup=False,
    )
    workers = arguments.workers or arguments.array_parallelism
    workers = workers or default_workers(options.device, planned.sweep.threads)
    if arguments.dry_run:
        return _estimate(planned, 1 if arguments.engine == "here" else workers, options, began, console)
    remember(planned.sweep.name, [job.config for job in planned.jobs], Path(options.out))
    try:
        with _display(console, planned) as report:
            if slurm is None:
                outcome = _launch(planned, workers, arguments, report, server)
            else:
                outcome = _launch_slurm(planned, slurm, arguments, report, console)
    except KeyboardInterrupt:
        if slurm is None:  # jobs of Slurm go on, which was said
            console.print("Stopped; the same command goes on from the last checkpoints.")
        raise
    failed = console_of()
    for run_id, reason in outcome.failed.items():
        failed.print(printable(f"Failed: {run_id}: {reason}"), markup=False)
    console.print(f"{len(outcome.done)} of {len(planned.jobs)} runs are done, {len(outcome.failed)} failed.")
    return 1 if outcome.failed else 0


def _estimate(planned: Plan, workers: int, options: RunOptions, began: float, console: Console) -> int:
    from genie_dg.bench.engines.local import devices_for
    from genie_dg.bench.status import duration
    from genie_dg.bench.sweep import estimate
    from genie_dg.runtime import cores

    start = time.perf_counter() - began + planned.opening  # a worker opens the data as well
    made, threads = estimate(planned, options), planned.sweep.threads
    shared = cores() if devices_for(1, options.device) == ["cpu"] else 0
    together, alone = (duration(made.seconds(count, threads, shared, start)) for count in (workers, 1))
    each = "1 thread" if threads == 1 else f"{threads} threads"
    console.print(f"About {together} with {workers} at a time, {each} each; {alone} one after another.")
    if made.paces:
        console.print(
            f"It rests on {start:.2g} s to start, and on a few steps, an evaluation and a checkpoint of each "
            "kind of run, timed just now:"
        )
    for pace in made.paces[:SHOWN]:
        times = f"{pace.step:.3g} s a step, {pace.evaluation:.3g} s an evaluation, {pace.start:.3g} s to begin"
        console.print(printable(f"  {pace.kind}: {times}"), markup=False)
    if len(made.paces) > SHOWN:
        console.print(f"  and {len(made.paces) - SHOWN} more")
    if made.untimed:
        console.print(f"  {made.untimed} more kinds were not timed; they count by their optimizers' passes.")
    return 0


def _launch(
    planned: Plan,
    workers: int,
    arguments: argparse.Namespace,
    report: EventReport,
    server: WorkerServer | None,
) -> Outcome:
    from genie_dg.bench.engines.local import launch, launch_here

    shared: dict[str, Any] = {
        "retries": arguments.retries,
        "device": options_from(arguments).device,
        "report": report,
    }
    if arguments.engine == "here":
        return launch_here(planned.jobs, **shared)
    if arguments.engine == "ray":
        from genie_dg.bench.engines.ray import launch_ray

        ray = {"address": arguments.address or "", "cpus": arguments.cpus, "gpus": arguments.gpus}
        return launch_ray(planned.jobs, **ray, **shared)
    return launch(planned.jobs, workers, server=server, **shared)


def _resources(arguments: argparse.Namespace) -> Resources:
    """What each run asks Slurm for, checked before the data is opened."""
    from genie_dg.bench.engines.slurm import resources

    return resources(
        arguments.partition or "",
        arguments.time or "",
        arguments.cpus,
        arguments.gpus,
        arguments.array_parallelism or 0,
        arguments.slurm or (),
    )


def _launch_slurm(
    planned: Plan, asked: Resources, arguments: argparse.Namespace, report: EventReport, console: Console
) -> Outcome:
    from genie_dg.bench.engines.slurm import launch_slurm

    return launch_slurm(
        planned.jobs,
        planned.sweep.name,
        asked,
        retries=arguments.retries,
        device=options_from(arguments).device,
        report=report,
        say=lambda text: console.print(printable(text), markup=False),
    )


@contextmanager
def _display(console: Console, planned: Plan) -> Iterator[EventReport]:
    """A bar over all steps with time left; a line for each run that ends, fails or is tried again."""
    from genie_dg.bench.status import describe

    configs = {job.config.run_id: job.config for job in planned.jobs}
    behind = {job.config.run_id: job.config.steps if job.done else 0 for job in planned.jobs}
    total = sum(config.steps for config in configs.values())
    with progress_bar("sweep", total, console, "steps") as bar:
        bar(done=sum(behind.values()))
        ended = [sum(job.done for job in planned.jobs)]

        def report(event: Event) -> None:
            behind[event.run] = max(behind[event.run], event.done)
            if event.kind == "done":
                ended[0] += 1
            bar(done=sum(behind.values()), text=f"{ended[0]} of {len(configs)} runs")
            if event.kind in ("done", "failed", "retry"):
                config = configs[event.run]
                what = describe(config, [domain.name for domain in planned.data[config.dataset].domains])
                why = f": {event.reason}" if event.reason else ""
                line = f"{event.kind:6} {ended[0]:>5} of {len(configs)}  {what}{why}"
                console.print(printable(line), markup=False)

        yield report
