"""All that the paper asks of bench and of results: train in memory or into folders, and read what was trained.

No other module of this package starts a run or reads the folder of one.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import polars as pl
import torch

from genie_dg.bench.assemble import DegenerateWarning, Parts, assemble
from genie_dg.bench.engines.engine import Update
from genie_dg.bench.engines.launch import launch
from genie_dg.bench.options import Job, RunOptions
from genie_dg.bench.sweep import plan
from genie_dg.bench.train import take_steps, train
from genie_dg.data.domains import DomainSet
from genie_dg.data.registry import open_data
from genie_dg.results.frame import PER_RECORD_MEANS, load
from genie_dg.results.select import SelectedRun, cases, select
from genie_dg.results.tables import Cell, cell_of, gather, mean_cell
from genie_dg.runs.config import RunConfig
from genie_dg.runs.decode import OF_RECORD
from genie_dg.runs.read import seconds
from genie_dg.runs.sweep_list import write_list

from .experiments import Experiment, Grid, sweeps, to_toml
from .request import Request


def train_in_memory(config: RunConfig, data: DomainSet, device: str = "cpu") -> Iterator[tuple[int, Parts]]:
    """Train as ``genie-dg train`` does; yields the number of steps done, from 0, and the parts of the run.

    Torch's global random stream is put back afterwards.
    """
    parts = assemble(config, data, RunOptions(device=device))
    with torch.random.fork_rng(devices=[]):
        yield 0, parts
        for step in take_steps(parts):
            yield step + 1, parts


def train_and_select(config: RunConfig, data: DomainSet, runs: Path) -> SelectedRun:
    """The record of a run that training-domain validation selects; the run is trained unless it is done."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DegenerateWarning)
        train(assemble(config, data), runs / config.run_id)
    (choice,) = select(load(runs / config.run_id)).values()
    return choice


def train_side_by_side(
    configs: Sequence[RunConfig], data: str, root: Path | None, runs: Path, workers: int
) -> None:
    """Train runs in processes of their own; one that fails is left as it is."""
    options = RunOptions(out=str(runs), root=str(root or ""))
    jobs = [Job(config, data, options) for config in configs]
    launch(jobs, workers=workers, retries=0)


@dataclass(frozen=True)
class GridRuns:
    """The runs of one sweep that are there, and how many there should be."""

    grid: Grid
    frame: pl.DataFrame
    planned: int


@dataclass(frozen=True)
class ExperimentRuns:
    """The runs of all sweeps of a table, the files that define these, and sentences about what went wrong."""

    grids: tuple[GridRuns, ...] = ()
    files: tuple[Path, ...] = ()
    problems: tuple[str, ...] = ()


def run_experiment(experiment: Experiment, request: Request) -> ExperimentRuns:
    """Run what is not done yet; a second call goes on where the first was stopped.

    Every sweep is left as a TOML file in ``request.out``, for `genie-dg sweep`.
    """
    data = experiment.set_of(request.scale, request.data)
    request.out.mkdir(parents=True, exist_ok=True)
    listed = sweeps(experiment, request.scale, data, len(open_data(data, request.root).domains))
    files: list[Path] = []
    problems: list[str] = []
    planned: list[tuple[Grid, list[str]]] = []
    for at, (grid, sweep) in enumerate(listed, 1):
        path = request.out / f"{sweep.name}.toml"
        path.write_text(to_toml(sweep, f"{experiment.about}\nScale: {request.scale}."), encoding="utf-8")
        files.append(path)
        cache = str(request.out / "cache") if Path(data).is_dir() or request.root else ""
        jobs = plan(path, RunOptions(str(request.out / "runs"), str(request.root or ""), cache)).jobs
        write_list(request.out / "runs", sweep.name, [job.config for job in jobs], path)
        with warnings.catch_warnings():
            if experiment.task == "single-source":  # its page says that CORAL equals ERM
                warnings.simplefilter("ignore", DegenerateWarning)
            problems += _run_jobs(jobs, f"{sweep.name} ({at} of {len(listed)})", request)
        planned.append((grid, [job.config.run_id for job in jobs]))
    grids = _read_grids(planned, request.out / "runs", problems)
    return ExperimentRuns(grids, tuple(files), tuple(problems))


def _run_jobs(jobs: Sequence[Job], title: str, request: Request) -> list[str]:
    """Train the jobs of a sweep that are not done; returns a sentence for each that failed."""
    print(f"{title}: {sum(not job.done for job in jobs)} of {len(jobs)} runs to do", flush=True)

    def report(update: Update) -> None:
        if update.headline in ("retry", "failed"):
            print(f"{update.headline}: {update.run}: {update.reason}", flush=True)

    engine = "here" if request.workers == 1 else "local"
    launched = launch(jobs, engine, workers=request.workers, report=report)
    return [f"Run {run} failed: {reason}" for run, reason in launched.failed.items()]


def _read_grids(
    planned: Sequence[tuple[Grid, list[str]]], runs: Path, problems: list[str]
) -> tuple[GridRuns, ...]:
    """The runs of each sweep, in the order in which they were planned."""
    frame = load(runs, problems=problems)
    places = {run: at for at, run in enumerate(frame["run"])}
    there = [(grid, [places[run] for run in ids if run in places], len(ids)) for grid, ids in planned]
    return tuple(GridRuns(grid, frame[rows], count) for grid, rows, count in there)


Row = tuple[str, str]
"""Algorithm and optimizer."""


def accuracies(frame: pl.DataFrame) -> dict[str, dict[Row, dict[str, Cell]]]:
    """By data set, row and column, the accuracy that training-domain validation selects, over trials.

    A column is a test domain or, where all domains but one are tested on, the source; "Avg" is the mean over
    those that have runs.
    """
    choices = select(frame)
    trials: dict[str, dict[Row, dict[str, dict[int, SelectedRun]]]] = {}
    for case in cases(frame):
        tested = [case.domains[k] for k in case.test_domains]
        column = tested[0] if len(tested) == 1 else next(name for name in case.domains if name not in tested)
        columns = trials.setdefault(case.dataset, {}).setdefault((case.algorithm, case.optimizer), {})
        columns.setdefault(column, {})[case.trial] = choices[case]
    return {name: {row: _with_average(c) for row, c in rows.items()} for name, rows in trials.items()}


def _with_average(columns: dict[str, dict[int, SelectedRun]]) -> dict[str, Cell]:
    """The cell of each column, and their mean; its error is that of the trials' means over all columns."""
    cells = {name: gather(sorted(trials), trials.__getitem__) for name, trials in columns.items()}
    whole = mean_cell(list(cells.values()), "domain")
    trials = set.intersection(*(set(some) for some in columns.values()))
    if whole.mean is not None and all(len(some) == len(trials) > 1 for some in columns.values()):
        means = [fmean(some[trial].score for some in columns.values()) for trial in sorted(trials)]
        whole = replace(whole, error=cell_of(means).error)
    return {**cells, "Avg": whole}


def until(frame: pl.DataFrame, step: int) -> pl.DataFrame:
    """The runs as if they had ended at a step."""
    count = pl.col("step").list.eval(pl.element() <= step).list.sum()
    by_domain = count * pl.col("domains").list.len()
    return frame.with_columns(
        pl.col(*OF_RECORD, *PER_RECORD_MEANS).list.head(count), pl.col("in_acc", "out_acc").list.head(by_domain)
    )


def seconds_until(folder: str, step: int) -> float:
    """Seconds of a run up to a step, evaluations included."""
    return sum(spent for at, spent in seconds(folder).items() if at <= step)
