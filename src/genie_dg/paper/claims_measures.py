"""How each claim is measured: functions from a `Bench` to numbers, one for each seed and part of a claim."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import fmean

import torch
from torch import nn
from torch.optim import SGD

from genie_dg._types import MAIN, StepContext
from genie_dg.bench.assemble import Parts, assemble
from genie_dg.bench.step import take_step
from genie_dg.bench.train import batch_of
from genie_dg.data.domains import DomainSet
from genie_dg.data.registry import open_data
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
from genie_dg.runs.record import RunConfig

from ._figure import Contender, cross_entropy, halves, samples, walk
from .claims_bench import Bench, Numbers, differences


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


def dynamics(bench: Bench) -> list[Numbers]:
    """GENIE minus each other: OSGR by the definition, in the theorem's form, and the updates' Gini.

    The definition's number of a run is the sum of gains on D' over the sum of gains on D, over all points where
    it is measured; the others are means over these points.
    """
    training, measuring = halves(bench.data)
    found: dict[str, Numbers] = {"definition": {}, "theorem": {}, "gini": {}}
    every = max(1, bench.config.steps // bench.sizes.osgr_points)
    for label in ("SGD", "Adam", "SAM", "GENIE"):
        contender = bench.tuned(label)
        for seed in bench.seeds:
            config = replace(bench.run_of(contender, seed), data_digest="")  # of halves
            sources = [k for k in range(len(bench.data.domains)) if k not in config.test_domains]
            pool = samples(measuring, sources, config.image_size, bench.sizes.pool)
            numbers = _watched(config, training, pool, every, config.batch_size * len(sources))
            for name, value in numbers.items():
                found[name].setdefault(label, []).append(value)
    return [against(found[name]) for name in ("definition", "theorem", "gini")]


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
    """Seconds of a training step with GENIE over those with each other, by turns, one number a repeat.

    On a network of the usual kind where the sizes name one: on a tiny one the time goes to calling kernels.
    """
    data, config = bench.data, bench.config
    if network := bench.sizes.cost_network:
        data = open_data("styleshapes")
        config = replace(
            config,
            dataset=data.name,
            data_digest="",
            backbone=network,
            batch_size=8,
            image_size=64,
            test_domains=(0,),
        )
    parts = {label: assemble(one.on(config), data) for label, one in bench.contenders.items()}
    batch = batch_of(parts["GENIE"].training.at(0), parts["GENIE"].device)
    seconds: Numbers = {label: [] for label in parts}
    for repeat in range(bench.sizes.repeats + 1):
        for label, one in parts.items():
            start = time.perf_counter()
            for step in range(3):
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
    for seed in range(min(max(3, bench.sizes.seeds), 12)):
        slopes = [
            rate_slope(horizons, [average_gradient_norm(make, t, seed=seed) for t in horizons]).slope
            for make in (genie, sgd)
        ]
        found.append(slopes[0] - slopes[1])
    return {"SGD": found}


def pac_bayes(bench: Bench) -> list[Numbers]:
    """Relative error of q g / rho^2 as the divergence's gradient, the next point fixed or moving along."""
    fixed: list[float] = []
    moving: list[float] = []
    for seed in range(min(max(3, bench.sizes.seeds), 12)):
        stream = torch.Generator().manual_seed(seed)
        theta, g = torch.randn(2, 64, generator=stream, dtype=torch.float64)
        q, variance = torch.rand(2, 64, generator=stream, dtype=torch.float64) + 0.05
        theta.requires_grad_()
        claimed = kl_gradient(g, q, variance)
        for kept, following in ((fixed, (theta - q * g).detach()), (moving, theta - q * g)):
            (true,) = torch.autograd.grad(kl_divergence(following, theta, q, variance), theta)
            kept.append(float((true - claimed).norm() / claimed.norm()))
    return [{"the next point held fixed": fixed}, {"the next point moving along": moving}]


def corollary(bench: Bench) -> Numbers:
    """R_GENIE - R_SGD at the counterexample; exact, so every trial would give the same number."""
    found = counterexample()
    return {"SGD, at the counterexample": [found.genie - found.sgd] * 2}


def _one(function: Callable[[Bench], Numbers]) -> Callable[[Bench], list[Numbers]]:
    return lambda bench: [function(bench)]


MEASURES: tuple[tuple[tuple[str, ...], Callable[[Bench], list[Numbers]]], ...] = (
    (("accuracy",), _one(better_accuracy)),
    (("preconditioning",), _one(preconditioning_suffices)),
    (("noise-and-mask",), _one(noise_and_mask_help)),
    (("robust",), _one(robust)),
    (("algorithms",), _one(other_algorithms)),
    (("one-source",), _one(one_source)),
    (("osgr", "osgr-preconditioner", "balance"), dynamics),
    (("osgr-always",), _one(corollary)),
    (("rate",), _one(convergence_rate)),
    (("pac-bayes", "pac-bayes-moving"), pac_bayes),
    (("cost",), _one(cost)),
)
"""What is measured together: the names of the claims, and what gives the numbers of each."""
