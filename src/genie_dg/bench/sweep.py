"""From a TOML file to jobs, and how long they will take."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

from genie_dg.algorithms.registry import ALGORITHMS
from genie_dg.check import InputError
from genie_dg.data.domains import DomainSet
from genie_dg.data.registry import open_data, row_of
from genie_dg.models.backbones import BACKBONES, find_backbone
from genie_dg.optim.registry import OPTIMIZERS
from genie_dg.protocols.registry import find_protocol
from genie_dg.protocols.sweep import Facts, SweepConfig, expand, load_sweep
from genie_dg.runs.record import RunConfig

from .assemble import assemble, refusals, source_domains
from .evaluate import score
from .options import Job, RunOptions
from .step import take_step
from .train import batch_of
from .watch import check_watches

HESSIAN_COST = 3.0
"""A product with the Hessian, in plain steps (benchmarks/train_step.py)."""


@dataclass(frozen=True)
class Plan:
    """A sweep, ready to be run: its jobs, and the data they name."""

    sweep: SweepConfig
    jobs: tuple[Job, ...]
    data: dict[str, DomainSet]


def plan(path: Path, options: RunOptions) -> Plan:
    """Everything that can be wrong is found here, before any work starts.

    Args:
        path: the TOML file of the sweep.
        options: of all its runs.
    """
    sweep = load_sweep(path)
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


def seconds_of(planned: Plan, options: RunOptions) -> float:
    """Seconds that all runs that are not done would take one after another, from a few measured steps.

    For each data set and network one step of ERM with Adam and a few batches of evaluation are timed; a step of
    another optimizer counts as many as it has passes. Algorithms are taken to cost as much as ERM.
    """
    total, timed = 0.0, {}
    for job in planned.jobs:
        config = job.config
        if job.done:
            continue
        key = (config.dataset, config.backbone, config.batch_size, config.image_size, config.pretrained)
        if key not in timed:
            timed[key] = _time(config, planned.data[config.dataset], options)
        step, evaluation = timed[key]
        row = OPTIMIZERS[config.optimizer]
        cost = row.passes + (HESSIAN_COST if row.create_graph else 0.0)
        total += config.steps * step * cost + (config.steps // config.checkpoint_every + 2) * evaluation
    return total


def _time(config: RunConfig, data: DomainSet, options: RunOptions) -> tuple[float, float]:
    """Seconds of a plain step, and of evaluating everything."""
    from genie_dg._types import StepContext

    plain = replace(
        config,
        algorithm="ERM",
        optimizer="adam",
        algorithm_settings={},
        optimizer_settings={},
        precision="float32",
    )
    parts = assemble(replace(plain, data_digest="", eval_augment="none"), data, options)
    times = []
    for step in range(3):
        began = time.perf_counter()
        batch = batch_of(parts.training.at(step), parts.device)
        take_step(parts.algorithm, parts.optimizers, batch, StepContext(step))
        times.append(time.perf_counter() - began)
    loader = max(parts.evaluations.values(), key=len)
    some = [batch for batch, _ in zip(loader, range(3), strict=False)]
    began = time.perf_counter()
    score(parts.algorithm, some, parts.device)
    each = (time.perf_counter() - began) / len(some)
    return min(times[1:]), each * sum(len(loader) for loader in parts.evaluations.values())
