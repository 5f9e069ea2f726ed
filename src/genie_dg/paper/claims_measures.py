"""How each claim is measured: functions from a `Bench` to numbers, one for each seed and part of a claim."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import nn
from torch.optim import SGD

from genie_dg._types import MAIN, StepContext
from genie_dg.bench.assemble import DegenerateWarning, Parts, assemble
from genie_dg.bench.step import take_step
from genie_dg.bench.train import batch_of, train
from genie_dg.config import RunConfig
from genie_dg.data.domains import DomainSet
from genie_dg.diagnostics import (
    UpdateRecorder,
    measure_osgr,
    osgr_of_batch,
    preconditioner,
)
from genie_dg.diagnostics.claims import counterexample
from genie_dg.diagnostics.convergence import average_gradient_norm, rate_slope, step_size
from genie_dg.diagnostics.pac_bayes import kl_divergence, kl_gradient
from genie_dg.optim.genie import GENIE

from ._figure import Contender, cross_entropy, halves, samples, walk

Numbers = dict[str, list[float]]
"""For each part of a claim one number for each seed."""

TUNING_SEED = 1000
"""The trial that chooses learning rates; no claim is measured on it."""


@dataclass(frozen=True)
class Sizes:
    """How large a ledger is."""

    seeds: int
    steps: int
    osgr_points: int
    pool: int
    repeats: int
    horizons: tuple[int, ...]
    lr_factors: tuple[float, ...]
    cells: tuple[tuple[float, float], ...]
    algorithms: tuple[str, ...]


SIZES = {
    "smoke": Sizes(2, 10, 1, 16, 3, (16, 64, 256), (1.0,), ((0.1, 0.9), (0.7, 0.99)), ("CORAL",)),
    "cpu": Sizes(
        12, 300, 4, 75, 12, (64, 256, 1024, 4096), (0.3, 1.0, 3.0),
        ((0.1, 0.9), (0.1, 0.99), (0.7, 0.9), (0.7, 0.99)), ("CORAL", "RSC"),
    ),
}  # fmt: skip


@dataclass
class Bench:
    """Runs and their accuracies; a run that is on the disk is not repeated.

    Args:
        data: the set.
        config: a run without optimizer, test domain and trial.
        sizes: how large.
        runs: the folder of runs.
        contenders: by label; `tuned` gives them their learning rates.
    """

    data: DomainSet
    config: RunConfig
    sizes: Sizes
    runs: Path
    contenders: dict[str, Contender]
    made: list[RunConfig] = field(default_factory=list)

    def run_of(
        self, contender: Contender, seed: int, algorithm: str = "ERM", source: bool = False
    ) -> RunConfig:
        """The run of a seed: domain ``last - seed`` (in turn) is left out, or is the only one trained on."""
        count = len(self.data.domains)
        one = (count - 1 - seed) % count
        test = tuple(k for k in range(count) if k != one) if source else (one,)
        return replace(contender.on(self.config), test_domains=test, trial_seed=seed, algorithm=algorithm)

    def records(self, config: RunConfig) -> list[dict[str, Any]]:
        """The records of a run, made now unless they are there."""
        if config not in self.made:
            self.made.append(config)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DegenerateWarning)
            return train(assemble(config, self.data), self.runs / config.run_id)

    def accuracy(self, config: RunConfig) -> float:
        """In points: on the test domains, at the record with the best validation on the sources."""
        return 100 * accuracy_of(self.records(config), config.test_domains)

    def tuned(self, label: str) -> Contender:
        """With the learning rate, of a few, that validates best on the tuning trial."""
        contender = self.contenders[label]
        if len(self.sizes.lr_factors) == 1:
            return contender
        tries = [
            replace(contender, settings={**contender.settings, "lr": contender.settings["lr"] * f})
            for f in self.sizes.lr_factors
        ]
        return max(tries, key=lambda c: validation_of(self.run_of(c, TUNING_SEED), self))

    @property
    def seeds(self) -> range:
        return range(self.sizes.seeds)


def validation_of(config: RunConfig, bench: Bench) -> float:
    """The best mean accuracy of a run on the held-back parts of its sources."""
    return max(_validation(record, config.test_domains) for record in bench.records(config))


def _validation(record: Mapping[str, Any], test_domains: Sequence[int]) -> float:
    return fmean(a for k, a in enumerate(record["out_acc"]) if k not in test_domains)


def accuracy_of(records: Sequence[Mapping[str, Any]], test_domains: Sequence[int]) -> float:
    """Mean ``in_acc`` of the test domains at the first record with the best validation.

    >>> early = {"out_acc": [0.5, 0.9], "in_acc": [0.5, 0.7]}
    >>> late = {"out_acc": [0.8, 0.1], "in_acc": [0.9, 0.2]}
    >>> accuracy_of([early, late], [1])
    0.2
    """
    best = max(records, key=lambda record: _validation(record, test_domains))
    return fmean(best["in_acc"][k] for k in test_domains)


def differences(bench: Bench, ours: Contender, theirs: Mapping[str, Contender], **options: Any) -> Numbers:
    """Accuracy of one optimizer minus that of each other, in points, paired by seed."""
    mine = [bench.accuracy(bench.run_of(ours, s, **options)) for s in bench.seeds]
    return {
        name: [
            a - bench.accuracy(bench.run_of(other, s, **options))
            for a, s in zip(mine, bench.seeds, strict=True)
        ]
        for name, other in theirs.items()
    }


def only_preconditioning(bench: Bench) -> Contender:
    """GENIE without noise and mask, at GENIE's learning rate."""
    genie = bench.tuned("GENIE")
    return replace(genie, label="preconditioning", settings={**genie.settings, "noise": False, "dropout": 0.0})


def others(bench: Bench) -> dict[str, Contender]:
    return {label: bench.tuned(label) for label in ("SGD", "Adam", "SAM")}


def preconditioning_suffices(bench: Bench) -> Numbers:
    return differences(bench, only_preconditioning(bench), {"Adam": bench.tuned("Adam")})


def noise_and_mask_help(bench: Bench) -> Numbers:
    return differences(bench, bench.tuned("GENIE"), {"preconditioning alone": only_preconditioning(bench)})


def better_accuracy(bench: Bench) -> Numbers:
    return differences(bench, bench.tuned("GENIE"), others(bench))


def robust(bench: Bench) -> Numbers:
    genie, found = bench.tuned("GENIE"), {}
    for p, beta in bench.sizes.cells:
        cell = replace(genie, settings={**genie.settings, "dropout": p, "beta": beta})
        for name, values in differences(bench, cell, others(bench)).items():
            found[f"p={p:g}, beta={beta:g} against {name}"] = values
    return found


def other_algorithms(bench: Bench) -> Numbers:
    found = {}
    for algorithm in bench.sizes.algorithms:
        numbers = differences(bench, bench.tuned("GENIE"), {"Adam": bench.tuned("Adam")}, algorithm=algorithm)
        found[f"{algorithm} against Adam"] = numbers["Adam"]
    return found


def one_source(bench: Bench) -> Numbers:
    return differences(bench, bench.tuned("GENIE"), {"Adam": bench.tuned("Adam")}, source=True)


def dynamics(bench: Bench) -> dict[str, Numbers]:
    """For each optimizer and seed: OSGR by the definition, in the theorem's form, and the updates' Gini.

    The definition's number of a run is the sum of gains on D' over the sum of gains on D, over all points where
    it is measured; the others are means over these points.
    """
    training, measuring = halves(bench.data)
    found: dict[str, Numbers] = {"definition": {}, "theorem": {}, "gini": {}}
    every = max(1, bench.config.steps // bench.sizes.osgr_points)
    for label in ("SGD", "Adam", "SAM", "GENIE"):
        contender = bench.tuned(label)
        for seed in bench.seeds:
            config = bench.run_of(contender, seed)
            sources = [k for k in range(len(bench.data.domains)) if k not in config.test_domains]
            pool = samples(measuring, sources, config.image_size, bench.sizes.pool)
            numbers = _watched(config, training, pool, every, config.batch_size * len(sources))
            for name, value in numbers.items():
                found[name].setdefault(label, []).append(value)
    return found


def _watched(
    config: RunConfig, data: DomainSet, pool: tuple[torch.Tensor, torch.Tensor], every: int, n: int
) -> dict[str, float]:
    gains: list[tuple[float, float]] = []
    theorem: list[float] = []
    ginis: list[float] = []
    recorders: list[UpdateRecorder] = []

    def look(step: int, parts: Parts) -> None:
        model, optimizer = parts.algorithm.network, parts.optimizers[MAIN]
        if step == 0:
            recorders.append(UpdateRecorder(model, bins=1))
        elif step % every == 0:
            ginis.append(recorders[0].record(step).get("gini", math.nan))
            measured = measure_osgr(model, optimizer, cross_entropy, pool, n)
            gains.append((measured.gain_on_other, measured.gain_on_d))
            if config.optimizer != "sam":
                p = preconditioner(optimizer, model)
                theorem.append(osgr_of_batch(model, cross_entropy, pool, p, n=n).value)

    walk(config, data, look)
    on_other, on_d = (math.fsum(column) for column in zip(*gains, strict=True))
    found = {"definition": on_other / on_d, "gini": fmean(ginis)}
    return found | ({"theorem": fmean(theorem)} if theorem else {})


def against(numbers: Numbers, ours: str = "GENIE") -> Numbers:
    """Ours minus each other, seed by seed.

    >>> against({"SGD": [1.0, 2.0], "GENIE": [1.5, 2.0]})
    {'SGD': [0.5, 0.0]}
    """
    return {
        label: [a - b for a, b in zip(numbers[ours], values, strict=True)]
        for label, values in numbers.items()
        if label != ours
    }


def cost(bench: Bench) -> Numbers:
    """Seconds of a training step with GENIE over those with each other, by turns, one number a repeat."""
    parts = {}
    for label, contender in bench.contenders.items():
        config = bench.run_of(contender, 0)
        parts[label] = assemble(config, bench.data)
    batch = batch_of(parts["GENIE"].training.at(0), parts["GENIE"].device)
    seconds: Numbers = {label: [] for label in parts}
    for repeat in range(bench.sizes.repeats + 1):
        for label, one in parts.items():
            start = time.perf_counter()
            for step in range(5):
                take_step(one.algorithm, one.optimizers, batch, StepContext(step))
            if repeat:  # the first warms up
                seconds[label].append(time.perf_counter() - start)
    mine = seconds.pop("GENIE")
    return {label: [a / b for a, b in zip(mine, values, strict=True)] for label, values in seconds.items()}


def convergence_rate(bench: Bench) -> Numbers:
    """The fitted exponent of GENIE minus that of SGD, on the same noise."""

    def sgd(parameters: list[nn.Parameter], horizon: int) -> torch.optim.Optimizer:
        return SGD(parameters, lr=step_size(horizon))

    def genie(parameters: list[nn.Parameter], horizon: int) -> torch.optim.Optimizer:
        return GENIE(parameters, lr=step_size(horizon))

    horizons, found = bench.sizes.horizons, []
    for seed in range(max(3, bench.sizes.seeds)):
        slopes = [
            rate_slope(horizons, [average_gradient_norm(make, t, seed=seed) for t in horizons]).slope
            for make in (genie, sgd)
        ]
        found.append(slopes[0] - slopes[1])
    return {"SGD": found}


def pac_bayes(bench: Bench) -> dict[str, Numbers]:
    """Relative error of q g / rho^2 as the divergence's gradient, the next point fixed or moving along."""
    fixed: list[float] = []
    moving: list[float] = []
    for seed in range(max(3, bench.sizes.seeds)):
        stream = torch.Generator().manual_seed(seed)
        theta, g = torch.randn(2, 64, generator=stream, dtype=torch.float64)
        q, variance = torch.rand(2, 64, generator=stream, dtype=torch.float64) + 0.05
        theta.requires_grad_()
        claimed = kl_gradient(g, q, variance)
        for kept, following in ((fixed, (theta - q * g).detach()), (moving, theta - q * g)):
            (true,) = torch.autograd.grad(kl_divergence(following, theta, q, variance), theta)
            kept.append(float((true - claimed).norm() / claimed.norm()))
    return {"fixed": {"the next point held fixed": fixed}, "moving": {"the next point moving along": moving}}


def corollary(bench: Bench) -> Numbers:
    """R_GENIE - R_SGD at the counterexample; exact, so both numbers are the same."""
    found = counterexample()
    return {"SGD, at the counterexample, exact and entered twice": [found.genie - found.sgd] * 2}
