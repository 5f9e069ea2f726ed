"""Run the sweeps of a table and read what came out."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from genie_dg.bench.assemble import DegenerateWarning
from genie_dg.bench.launch import Event, launch, launch_here
from genie_dg.bench.status import remember, remembered
from genie_dg.bench.sweep import plan
from genie_dg.data.registry import open_data
from genie_dg.protocols.genie_paper import GENIE_PAPER
from genie_dg.results.schema import Run
from genie_dg.results.select import Chosen, Missing, cases, select
from genie_dg.results.store import load
from genie_dg.results.table import Cell, average, gather
from genie_dg.runs.record import RunConfig

from ._base import Request
from .experiments import EMBEDDED, PROTOCOL, Experiment, Grid, sweep_name, sweeps, to_toml


@dataclass(frozen=True)
class Part:
    """The runs of one sweep that are there, and how many there should be."""

    grid: Grid
    runs: tuple[Run, ...]
    planned: int


@dataclass(frozen=True)
class Measurement:
    """All sweeps of a table, the files that define them, and sentences about what went wrong."""

    parts: tuple[Part, ...]
    files: tuple[Path, ...]
    problems: tuple[str, ...]


def measure(experiment: Experiment, request: Request) -> Measurement:
    """Run what is not done yet; a second call goes on where the first was stopped.

    Every sweep is left as a TOML file in ``request.out``, for `genie-dg sweep`.
    """
    data = request.data or EMBEDDED[request.scale]
    runs, files, problems, ids = request.out / "runs", [], [], []
    request.out.mkdir(parents=True, exist_ok=True)
    listed = sweeps(experiment, request.scale, data, len(open_data(data, request.root).domains))
    for at, (_, sweep) in enumerate(listed, 1):
        path = request.out / f"{sweep.name}.toml"
        path.write_text(to_toml(sweep, f"{experiment.about}\nScale: {request.scale}."), encoding="utf-8")
        files.append(path)
        cache = request.out / "cache" if Path(data).is_dir() or request.root else None
        planned = plan(path, runs, root=request.root, cache=cache)
        remember(sweep.name, [job.config for job in planned.jobs], runs)
        count = sum(not job.done for job in planned.jobs)
        title = f"{sweep.name} ({at} of {len(listed)})"
        request.say(f"{title}: {count} of {len(planned.jobs)} runs to do")
        total = sum(job.config.steps for job in planned.jobs)
        behind = {job.config.run_id: job.config.steps for job in planned.jobs if job.done}

        tell = partial(_tell, request, behind, total, title)

        with warnings.catch_warnings():
            if experiment.task == "single-source":  # its page says that CORAL equals ERM
                warnings.simplefilter("ignore", DegenerateWarning)
            if request.workers == 1:
                outcome = launch_here(planned.jobs, report=tell)
            else:
                outcome = launch(planned.jobs, request.workers, report=tell)
        problems += [f"Run {run} failed: {reason}" for run, reason in outcome.failed.items()]
        ids.append([job.config.run_id for job in planned.jobs])
    found, unread = load(runs)
    by_id = {run.run_id: run for run in found}
    parts = [
        Part(grid, tuple(by_id[i] for i in some if i in by_id), len(some))
        for (grid, _), some in zip(listed, ids, strict=True)
    ]
    return Measurement(tuple(parts), tuple(files), (*problems, *unread))


def _tell(request: Request, behind: dict[str, int], total: int, what: str, event: Event) -> None:
    """Pass on what a launcher reports; ``behind`` has the steps done of each run."""
    if event.kind in ("retry", "failed"):
        request.say(f"{event.kind}: {event.run}: {event.reason}")
    behind[event.run] = max(behind.get(event.run, 0), event.done)
    request.tick(sum(behind.values()), total, what)


def recall(experiment: Experiment, out: Path) -> Measurement:
    """What `genie-dg sweep` left in ``out / "runs"`` for the sweeps of an experiment; runs nothing."""
    known = {
        name: [config for config in configs if _published(experiment, config)]
        for name, configs in remembered(out / "runs").items()
    }
    names = {sweep_name(experiment, grid): grid for grid in experiment.grids}
    if not any(known.get(name) for name in names):
        return Measurement((), (), ())
    found, unread = load(out / "runs")
    by_id = {run.run_id: run for run in found}

    def of(configs: Sequence[RunConfig]) -> tuple[Run, ...]:
        return tuple(by_id[config.run_id] for config in configs if config.run_id in by_id)

    parts = [Part(grid, of(known[name]), len(known[name])) for name, grid in names.items() if known.get(name)]
    return Measurement(tuple(parts), (), tuple(unread))


def _published(experiment: Experiment, config: RunConfig) -> bool:
    """Whether a run is of the scale ``paper``, not of a miniature in the same folder."""
    small = config.backbone != GENIE_PAPER.backbone or config.dataset not in experiment.datasets
    return config.protocol.partition("/")[0] == PROTOCOL and not small


Row = tuple[str, str]
"""Algorithm and optimizer."""


def cells(runs: Sequence[Run]) -> dict[str, dict[Row, dict[str, Cell]]]:
    """By data set, row and column, the accuracy that training-domain validation selects, over trials.

    A column is a test domain or, where all domains but one are tested on, the source; "Avg" is the mean over
    those that have runs.
    """
    chosen = select(runs)
    asked: dict[str, dict[Row, dict[str, dict[int, Chosen | Missing]]]] = {}
    for case in cases(runs):
        tested = [case.domains[k] for k in case.test_domains]
        rest = [name for name in case.domains if name not in tested]
        column = tested[0] if len(tested) == 1 else rest[0]
        rows = asked.setdefault(case.dataset, {})
        columns = rows.setdefault((case.row.algorithm, case.row.optimizer), {})
        columns.setdefault(column, {})[case.trial] = chosen[case]
    found: dict[str, dict[Row, dict[str, Cell]]] = {}
    for dataset, rows in asked.items():
        for row, columns in rows.items():
            filled = {
                column: gather(sorted(trials), trials.__getitem__, lambda c: sum(c.scores) / len(c.scores))
                for column, trials in columns.items()
            }
            filled["Avg"] = average(list(filled.values()), "domain")
            found.setdefault(dataset, {})[row] = filled
    return found


def until(run: Run, step: int) -> Run:
    """The run as if it had ended at a step."""
    return replace(run, numbers=run.numbers[run.steps <= step])


def seconds_until(run: Run, step: int) -> float:
    """Seconds of a run up to a step, evaluations included, as its ``timings.jsonl`` tells them."""
    lines = (Path(run.folder) / "timings.jsonl").read_text(encoding="utf-8").splitlines()
    latest = {int(told["step"]): float(told["seconds"]) for told in map(json.loads, lines)}
    return sum(seconds for at, seconds in latest.items() if at <= step)
