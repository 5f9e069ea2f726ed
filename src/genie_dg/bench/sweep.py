"""From a TOML file to jobs, and how long they will take."""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from genie_dg._types import StepContext
from genie_dg.algorithms.registry import ALGORITHMS
from genie_dg.check import InputError
from genie_dg.data.domains import DomainSet
from genie_dg.data.registry import open_data, row_of
from genie_dg.models.backbones import BACKBONES, find_backbone
from genie_dg.models.timm_model import PREFIX
from genie_dg.optim.registry import OPTIMIZERS
from genie_dg.protocols.registry import find_protocol
from genie_dg.protocols.sweep import Facts, SweepConfig, expand, load_sweep
from genie_dg.runs.config import RunConfig
from genie_dg.runtime import same_kernels

from .assemble import DegenerateWarning, Parts, assemble
from .checks import try_out
from .evaluate import score
from .options import Job, RunOptions
from .request import check_here
from .status import makespan
from .step import batch_of, take_step
from .trackers.tracker import check_trackers

_TIMED = 4
"""Steps, and batches of an evaluation, that an estimate times."""
_HESSIAN_COST = 3.0
"""A product with the Hessian, in plain steps (benchmarks/train_step.py)."""


@dataclass(frozen=True)
class Plan:
    """A sweep, ready to be run.

    Args:
        sweep: as its file says.
        jobs: its runs.
        data: the sets that they name, opened.
        opening: seconds that it took to open the data.
        protocol: the file of the user's own protocol, where the sweep names one.
    """

    sweep: SweepConfig
    jobs: tuple[Job, ...]
    data: dict[str, DomainSet]
    opening: float
    protocol: Path | None = None


def plan(path: Path, options: RunOptions, threads: int | None = None) -> Plan:
    """Everything that can be wrong is found here, before any work starts.

    Args:
        path: the TOML file of the sweep.
        options: of all its runs.
        threads: of each run, instead of what the file says.
    """
    check_here(options)
    check_trackers(options.tracks)
    sweep = load_sweep(path)
    options = replace(options, group=sweep.name)
    if threads is not None:
        sweep = replace(sweep, threads=threads)
    profile = find_protocol(sweep.protocol, path.parent)
    for backbone in {profile.backbone, profile.small_backbone}:
        if not backbone.lower().startswith(PREFIX):  # those of timm are looked up where they are used
            find_backbone(backbone)
    began = time.perf_counter()
    of_set = {entry: _with_columns(options, sweep.columns.get(entry, {})) for entry in sweep.datasets}
    opened = {entry: open_data(entry, one.root or None, one.columns) for entry, one in of_set.items()}
    opening = time.perf_counter() - began
    entries = {data.name: entry for entry, data in opened.items()}
    if len(entries) != len(opened):
        raise InputError(f"Two data sets of the sweep have one name ({', '.join(entries)}); rename a folder.")
    sets = {data.name: data for data in opened.values()}
    facts = facts_of(
        {name: [domain.name for domain in data.domains] for name, data in sets.items()},
        [name for name, data in sets.items() if data.in_files],
        [name for name, data in sets.items() if data.is_table],
    )
    digests = {name: data.digest() for name, data in sets.items()}
    configs = expand(replace(sweep, datasets=list(sets), columns={}), profile, facts)
    try_out(configs, sets)
    jobs = tuple(
        Job(replace(config, data_digest=digests[config.dataset]), entry, of_set[entry])
        for config in configs
        if (entry := entries[config.dataset])
    )
    own = path.parent / sweep.protocol if sweep.protocol.lower().endswith(".toml") else None
    return Plan(sweep, jobs, sets, opening, own)


def _with_columns(options: RunOptions, said: Mapping[str, Any]) -> RunOptions:
    """The options of the runs on one data set, with what the sweep says of its columns."""
    return replace(
        options,
        domain_column=said.get("domain", ""),
        label_column=said.get("label", ""),
        image_column=said.get("image", ""),
        ignore_column=tuple(said.get("ignore", ())),
    )


def facts_of(
    domains: Mapping[str, Sequence[str]], in_files: Sequence[str] | None = None, tables: Sequence[str] = ()
) -> Facts:
    """What a sweep must know of the registries, and of data sets with these domains.

    Args:
        domains: for each data set the names of its domains.
        in_files: the sets of pictures in files; by default all but those of small pictures.
        tables: the sets that are tables of numbers.
    """
    flat = next(name for name, row in BACKBONES.items() if row.flat)
    small = tuple(name for name in domains if (row := row_of(name)) is not None and row.small_images)
    return Facts(
        domains,
        ALGORITHMS,
        OPTIMIZERS,
        small,
        tuple(name for name, row in BACKBONES.items() if not row.pretrained),
        tuple(name for name in domains if name not in small) if in_files is None else tuple(in_files),
        dict.fromkeys(tables, flat),
    )


@dataclass(frozen=True)
class Pace:
    """Seconds that runs of one shape (data set, network, size of batches) take, measured.

    Args:
        kind: which runs.
        config: of the run that was timed.
        start: to build a run and to warm up.
        step: of a step.
        evaluation: of an evaluation.
    """

    kind: str
    config: RunConfig
    start: float
    step: float
    evaluation: float

    def seconds(self, config: RunConfig) -> float:
        """Of a whole run; a step of another optimizer than the timed one counts by their passes."""
        step = self.step * _passes(config) / _passes(self.config)
        return self.start + config.steps * step + evaluations(config) * self.evaluation


def _passes(config: RunConfig) -> float:
    row = OPTIMIZERS[config.optimizer]
    return row.passes + (_HESSIAN_COST if row.create_graph else 0.0)


def evaluations(config: RunConfig) -> int:
    """How often a run is evaluated: at the first step, every so often, at the last, and once for an average.

    >>> evaluations(RunConfig("digits", (0,), steps=31, checkpoint_every=10))
    4
    """
    return len({*range(0, config.steps, config.checkpoint_every), config.steps - 1}) + config.swad


@dataclass(frozen=True)
class Estimate:
    """How long the runs of a sweep that are not done would take.

    Args:
        runs: the seconds of each, in order.
        paces: the measurements behind them.
    """

    runs: list[float]
    paces: list[Pace]

    def seconds(self, workers: int, threads: int, cores: int, start: float) -> float:
        """Of all runs, so many at a time, from the command to its end.

        Args:
            workers: runs at a time.
            threads: of each run; what is more than the cores waits.
            cores: of the machine, or 0 where runs are not on them.
            start: seconds before the first run.
        """
        if not self.runs:
            return 0.0
        crowded = max(1.0, min(workers, len(self.runs)) * threads / cores) if cores else 1.0
        return start + crowded * makespan(self.runs, workers)


def estimate_sweep(planned: Plan, options: RunOptions) -> Estimate:
    """How long the runs that are not done would take, roughly.

    Of each shape of runs (data set, network, size of batches) one is built, and a few steps, reading and
    augmenting included, and a few batches of an evaluation are timed. Another optimizer counts by its passes,
    another algorithm as the one that was timed.

    Args:
        planned: the sweep.
        options: of its runs.
    """
    runs, paces = list[float](), dict[tuple[Any, ...], Pace]()
    for config in (job.config for job in planned.jobs if not job.done):
        shape = (config.dataset, config.backbone, config.batch_size, config.image_size)
        if shape not in paces:
            paces[shape] = _pace(config, planned.data[config.dataset], options)
        runs.append(paces[shape].seconds(config))
    return Estimate(runs, list(paces.values()))


def _pace(config: RunConfig, data: DomainSet, options: RunOptions) -> Pace:
    began = time.perf_counter()
    with same_kernels(config.threads), warnings.catch_warnings():
        warnings.simplefilter("ignore", DegenerateWarning)
        parts = assemble(replace(config, precision="float32", data_digest=""), data, options)
        _step(parts, 0)
        start = time.perf_counter() - began
        step = _median(_TIMED, lambda k: _step(parts, k + 1))
        loader = max(parts.evaluations.values(), key=len)
        batches = iter(loader)
        each = _median(min(_TIMED, len(loader) - 1), lambda _: score(parts.algorithm, [next(batches)]))
    evaluation = each * sum(len(loader) for loader in parts.evaluations.values())
    kind = f"{config.dataset}, {config.backbone}, {config.batch_size} a domain, {config.optimizer}"
    return Pace(kind, config, start, step, evaluation)


def _step(parts: Parts, step: int) -> None:
    batch = batch_of(parts.training.at(step))
    take_step(parts.algorithm, parts.optimizers, batch, StepContext(step))


def _median(count: int, work: Callable[[int], object]) -> float:
    """The median time of ``count`` calls, after one that warms up, which counts where there is no other."""
    times = []
    for k in range(count + 1):
        began = time.perf_counter()
        work(k)
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:] or times)
