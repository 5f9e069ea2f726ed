"""Training runs that are measured along the way: everything the claims about dynamics need, from one pass each.

A run trains on half of the samples of each domain and is measured on the other half at a few steps
(`trajectory_points`) and at the end (`trajectory_ends`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from genie_dg.data.domains import DomainSet
from genie_dg.files import read_whole, write_json
from genie_dg.plugins import MAIN
from genie_dg.runs.config import RunConfig
from genie_dg.runtime import same_kernels

from .claim_runs import ClaimRuns, Sizes
from .figure_setup import OptimizerSetup, halves, samples
from .rules import Gains, GradientHistory, mean_of_defined
from .runs import train_in_memory
from .trajectory_points import PointNumbers, balance_of_moves, end_numbers, measure_point, weights_of

UNSEEN = 300
"""Samples of each domain left out that accuracy and class separation at the end are measured on, at most."""

VERSION = 1
"""Of what is measured; what an older version kept is measured anew."""


@dataclass(frozen=True)
class RunNumbers:
    """What was measured along one run; a number that does not exist is NaN.

    ``undefined`` counts, by name, the points whose ratio had no positive denominator.
    """

    label: str
    seed: int
    numbers: Mapping[str, float]
    undefined: Mapping[str, int]


def summarise(label: str, seed: int, points: Sequence[PointNumbers], end: Mapping[str, float]) -> RunNumbers:
    """Means over points of the numbers that exist, ratios of summed gains, and what was measured at the end.

    >>> first = PointNumbers({"r": 0.5}, {"g": Gains(1.0, 2.0)})
    >>> second = PointNumbers({"r": math.nan}, {"g": Gains(0.0, 2.0)})
    >>> one = summarise("SGD", 0, [first, second], {"accuracy": 90.0})
    >>> one.numbers, one.undefined
    ({'r': 0.5, 'g': 0.25, 'accuracy': 90.0}, {'r': 1})
    """
    numbers: dict[str, float] = {}
    undefined: dict[str, int] = {}
    for name in points[0].numbers:
        numbers[name], missing = mean_of_defined([point.numbers[name] for point in points])
        if missing:
            undefined[name] = missing
    for name in points[0].gains:
        numbers[name] = sum((point.gains[name] for point in points), Gains(0.0, 0.0)).ratio
        if math.isnan(numbers[name]):
            undefined[name] = len(points)
    return RunNumbers(label, seed, {**numbers, **end}, undefined)


def run_numbers(runs: ClaimRuns, setups: Sequence[OptimizerSetup]) -> list[RunNumbers]:
    """Train with each setup in each trial, and measure; what is on the disk is not repeated.

    With several workers runs are measured side by side; each has one thread, so their numbers are the same.
    """
    # Trials in the outer loop, so that what is there of a ledger that was stopped is whole trials.
    planned = [(setup.label, runs.config_of(setup, seed)) for seed in runs.seeds for setup in setups]
    size = f"{runs.sizes.osgr_points}x{runs.sizes.pool}-{VERSION}"
    folder = runs.runs.parent / "measured"
    kept = [folder / f"{config.run_id}-{size}.json" for _, config in planned]
    pairs = [(one, path) for one, path in zip(planned, kept, strict=True) if not path.exists()]
    missing = [(runs.data, runs.sizes, *one, path) for one, path in pairs]
    _measure_runs(missing, runs.workers)
    return [kept_numbers(path) for path in kept]


def _measure_runs(missing: Sequence[tuple[Any, ...]], workers: int) -> None:
    """Measure runs, in processes of their own where there are workers; after an error none is begun."""
    if workers == 1 or len(missing) < 2:
        for one in missing:
            _measure_run(*one)
        return
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
    try:
        for done in [pool.submit(_measure_run, *one) for one in missing]:
            done.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _measure_run(data: DomainSet, sizes: Sizes, label: str, config: RunConfig, path: Path) -> None:
    """Train and measure one run, and keep its numbers."""
    with same_kernels(1):
        keep(path, _run(data, sizes, label, config))


def keep(path: Path, one: RunNumbers) -> None:
    """Write what was measured along a run; NaN, which JSON does not have, as null."""
    path.parent.mkdir(parents=True, exist_ok=True)
    numbers = {name: value if math.isfinite(value) else None for name, value in one.numbers.items()}
    write_json(path, {**asdict(one), "numbers": numbers})


def kept_numbers(path: Path) -> RunNumbers:
    """What `keep` wrote."""
    held = json.loads(read_whole(path))
    numbers = {name: math.nan if value is None else value for name, value in held["numbers"].items()}
    return RunNumbers(**{**held, "numbers": numbers})


def _run(data: DomainSet, sizes: Sizes, label: str, config: RunConfig) -> RunNumbers:
    training, measuring = halves(data)
    config = replace(config, data_digest="")  # of halves
    sources = [k for k in range(len(training.domains)) if k not in config.test_domains]
    pool = samples(measuring, sources, config.image_size, sizes.pool)
    every = max(1, config.steps // sizes.osgr_points)
    n = config.batch_size * len(sources)
    points: list[PointNumbers] = []
    for step, parts in train_in_memory(config, training):
        model = parts.algorithm.network
        if step == 0:
            history, window = GradientHistory(model), weights_of(model)
            before = window
        else:
            history.add()
        if step > 0 and step % every == 0:
            now = weights_of(model)
            point = measure_point(model, parts.optimizers[MAIN], history, pool, n, config.optimizer)
            point.numbers |= balance_of_moves("step", now - before, history.sizes)
            point.numbers |= balance_of_moves("window", now - window, history.sizes)
            points.append(point)
            window = now
        if (step + 1) % every == 0:
            before = weights_of(model)
    unseen = samples(data, config.test_domains, config.image_size, UNSEEN)
    return summarise(label, config.trial_seed, points, end_numbers(parts, pool, unseen))
