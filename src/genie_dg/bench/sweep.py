"""From a TOML file to jobs, and how long they will take."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

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
from genie_dg.runs.record import RunConfig

from .assemble import Parts, assemble
from .evaluate import score
from .options import Job, RunOptions
from .request import check_here
from .step import batch_of, take_step
from .trial import try_out

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


def plan(path: Path, options: RunOptions) -> Plan:
    """Everything that can be wrong is found here, before any work starts.

    Args:
        path: the TOML file of the sweep.
        options: of all its runs.
    """
    check_here(options)
    sweep = load_sweep(path)
    profile = find_protocol(sweep.protocol, path.parent)
    for backbone in {profile.backbone, profile.small_backbone}:
        if not backbone.lower().startswith(PREFIX):  # those of timm are looked up where they are used
            find_backbone(backbone)
    opened = {entry: open_data(entry, options.root or None) for entry in sweep.datasets}
    entries = {data.name: entry for entry, data in opened.items()}
    if len(entries) != len(opened):
        raise InputError(f"Two data sets of the sweep have one name ({', '.join(entries)}); rename a folder.")
    sets = {data.name: data for data in opened.values()}
    facts = facts_of(
        {name: [domain.name for domain in data.domains] for name, data in sets.items()},
        [name for name, data in sets.items() if data.in_files],
    )
    digests = {name: data.digest() for name, data in sets.items()}
    configs = expand(replace(sweep, datasets=list(sets)), profile, facts)
    try_out(configs, sets)
    jobs = tuple(
        Job(replace(config, data_digest=digests[config.dataset]), entries[config.dataset], options)
        for config in configs
    )
    return Plan(sweep, jobs, sets)


def facts_of(domains: Mapping[str, Sequence[str]], in_files: Sequence[str] | None = None) -> Facts:
    """What a sweep must know of the registries, and of data sets with these domains.

    Args:
        domains: for each data set the names of its domains.
        in_files: the sets of pictures in files; by default all but those of small pictures.
    """
    small = tuple(name for name in domains if (row := row_of(name)) is not None and row.small_images)
    return Facts(
        domains,
        ALGORITHMS,
        OPTIMIZERS,
        small,
        tuple(name for name, row in BACKBONES.items() if not row.pretrained),
        tuple(name for name in domains if name not in small) if in_files is None else tuple(in_files),
    )


def runs_of(files: Mapping[str, str], domains: Mapping[str, Sequence[str]]) -> list[RunConfig]:
    """The runs of a sweep, without its data: their digests are empty.

    Args:
        files: the texts of its files by name; the first is the sweep's, the others may be its protocol's.
        domains: for each data set the names of its domains.
    """
    with TemporaryDirectory() as folder:
        for name, text in files.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        sweep = load_sweep(Path(folder) / next(iter(files)))
        profile = find_protocol(sweep.protocol, Path(folder))
        return expand(sweep, profile, facts_of(domains))


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
        each = _median(count, lambda _: score(parts.algorithm, [next(batches)]))
    finally:
        torch.set_num_threads(usual)
    kind = f"{config.dataset}, {config.backbone}, {config.batch_size} a domain"
    return Pace(kind, step, each * sum(len(loader) for loader in parts.evaluations.values()))


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
