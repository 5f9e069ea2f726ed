"""From a TOML file to jobs, and how long they will take."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from genie_dg._types import StepContext
from genie_dg.algorithms.registry import ALGORITHMS
from genie_dg.check import InputError
from genie_dg.data.domains import DomainSet
from genie_dg.data.registry import open_data, row_of
from genie_dg.models.backbones import BACKBONES, find_backbone
from genie_dg.optim.registry import OPTIMIZERS
from genie_dg.protocols.registry import find_protocol
from genie_dg.protocols.sweep import Facts, SweepConfig, expand, load_sweep
from genie_dg.runs.record import RunConfig

from .assemble import Parts, assemble, refusals, source_domains
from .evaluate import score
from .options import Job, RunOptions
from .step import take_step
from .train import batch_of
from .watch import check_watches

TIMED = 4
"""Steps, and batches of an evaluation, that an estimate times."""
HESSIAN_COST = 3.0
"""A product with the Hessian, in plain steps (benchmarks/train_step.py)."""


@dataclass(frozen=True)
class Plan:
    """A sweep, ready to be run: its jobs, and the data they name."""

    sweep: SweepConfig
    jobs: tuple[Job, ...]
    data: dict[str, DomainSet]


def plan(path: Path, options: RunOptions, threads: int | None = None) -> Plan:
    """Everything that can be wrong is found here, before any work starts.

    Args:
        path: the TOML file of the sweep.
        options: of all its runs.
        threads: of each run, instead of what the file says.
    """
    sweep = load_sweep(path)
    if threads is not None:
        sweep = replace(sweep, threads=threads)
    profile = find_protocol(sweep.protocol, path.parent)
    opened = {entry: open_data(entry, options.root or None) for entry in sweep.datasets}
    entries = {data.name: entry for entry, data in opened.items()}
    if len(entries) != len(opened):
        raise InputError(f"Two data sets of the sweep have one name ({', '.join(entries)}); rename a folder.")
    sets = {data.name: data for data in opened.values()}
    facts = Facts(
        {name: [domain.name for domain in data.domains] for name, data in sets.items()},
        ALGORITHMS,
        OPTIMIZERS,
        tuple(name for name in sets if (row := row_of(name)) is not None and row.small_images),
        tuple(name for name, row in BACKBONES.items() if not row.pretrained),
    )
    digests = {name: data.digest() for name, data in sets.items()}
    configs = expand(replace(sweep, datasets=list(sets)), profile, facts)
    for config in configs:
        source_domains(config, sets[config.dataset])
    for backbone in {config.backbone for config in configs}:
        with refusals():
            find_backbone(backbone)
    check_watches(options.watches)
    jobs = tuple(
        Job(replace(config, data_digest=digests[config.dataset]), entries[config.dataset], options)
        for config in configs
    )
    return Plan(sweep, jobs, sets)


@dataclass(frozen=True)
class Pace:
    """Seconds of one step of ERM with Adam, and of one evaluation, for runs of one kind."""

    kind: str
    step: float
    evaluation: float

    def seconds(self, config: RunConfig) -> float:
        """Of a whole run; a step of another optimizer counts as many as it has passes."""
        row = OPTIMIZERS[config.optimizer]
        cost = row.passes + (HESSIAN_COST if row.create_graph else 0.0)
        return config.steps * self.step * cost + evaluations(config) * self.evaluation


def evaluations(config: RunConfig) -> int:
    """How often a run is evaluated: at the first step, every so often, at the last, and once for an average.

    >>> evaluations(RunConfig("digits", (0,), steps=31, checkpoint_every=10))
    4
    """
    return len({*range(0, config.steps, config.checkpoint_every), config.steps - 1}) + config.swad


def estimate(planned: Plan, options: RunOptions, threads: int) -> tuple[float, list[Pace]]:
    """Seconds that all runs that are not done would take one after another, and the measurements behind it.

    For each data set, network and size of batches a few steps of ERM with Adam, reading and augmenting
    included, and a few batches of an evaluation are timed, after one of each to warm up. Algorithms are taken
    to cost as much as ERM.

    Args:
        planned: the sweep.
        options: of its runs.
        threads: of each run.
    """
    total, paces = 0.0, dict[tuple[Any, ...], Pace]()
    for job in planned.jobs:
        config = job.config
        if job.done:
            continue
        key = (config.dataset, config.backbone, config.batch_size, config.image_size, config.pretrained)
        if key not in paces:
            paces[key] = _pace(config, planned.data[config.dataset], options, threads)
        total += paces[key].seconds(config)
    return total, list(paces.values())


def _pace(config: RunConfig, data: DomainSet, options: RunOptions, threads: int) -> Pace:
    plain = replace(config, algorithm="ERM", optimizer="adam", algorithm_settings={}, optimizer_settings={})
    parts = assemble(replace(plain, precision="float32", data_digest=""), data, options)
    usual = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        step = _median(TIMED, lambda k: _step(parts, k))
        loader = max(parts.evaluations.values(), key=len)
        batches = iter(loader)
        count = min(TIMED, len(loader) - 1)
        each = _median(
            count, lambda _: score(parts.algorithm, [next(batches)], parts.device, layout=parts.layout)
        )
    finally:
        torch.set_num_threads(usual)
    kind = f"{config.dataset}, {config.backbone}, {config.batch_size} a domain"
    return Pace(kind, step, each * sum(len(loader) for loader in parts.evaluations.values()))


def _step(parts: Parts, step: int) -> None:
    batch = batch_of(parts.training.at(step), parts.device, parts.layout)
    take_step(parts.algorithm, parts.optimizers, batch, StepContext(step))


def _median(count: int, work: Callable[[int], object]) -> float:
    """The median time of ``count`` calls, after one that warms up, which counts where there is no other."""
    times = []
    for k in range(count + 1):
        began = time.perf_counter()
        work(k)
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:] or times)
