"""How each claim is measured: functions from `ClaimRuns` to numbers, one for each seed and part of a claim."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch.optim import SGD

from genie_dg.bench.assemble import assemble
from genie_dg.bench.step import batch_of, take_step
from genie_dg.data.registry import open_data
from genie_dg.optim.genie import GENIE
from genie_dg.plugins import StepContext

from .claim_runs import ClaimNumbers, ClaimRuns
from .convergence import OptimizerFactory, average_gradient_norm, bound_of_run, rate_slope, step_size
from .figure_setup import OptimizerSetup
from .pac_bayes import kl_divergence, kl_gradient
from .theory import counterexample
from .trajectory_claims import NAMES, SCALE_FREE, THEOREM, along_training

OTHERS = ("SGD", "Adam", "SAM")
FOUR = ("Adam", "AdamW", "SGD", "SAM")
"""What the claims about Tables 4 and 5 compare with."""


def parts_of_genie(runs: ClaimRuns) -> list[ClaimNumbers]:
    """GENIE without noise and mask, at GENIE's learning rate, minus Adam; and GENIE minus that."""
    genie = runs.tuned("GENIE")
    alone = replace(genie.having(noise=False, dropout=0.0), label="preconditioning")
    against_adam = runs.differences(alone, {"Adam": runs.tuned("Adam")})
    return [against_adam, runs.differences(genie, {"preconditioning alone": alone})]


def robust(runs: ClaimRuns) -> ClaimNumbers:
    numbers = {}
    for p, beta in runs.sizes.cells:
        cell = runs.tuned("GENIE").having(dropout=p, beta=beta)
        others = {label: runs.tuned(label) for label in OTHERS}
        for name, values in runs.differences(cell, others).items():
            numbers[f"p={p:g}, beta={beta:g} against {name}"] = values
    return numbers


def other_algorithms(runs: ClaimRuns) -> ClaimNumbers:
    numbers = {}
    for algorithm in runs.sizes.algorithms:
        for label, values in genie_against(runs, *FOUR, algorithm=algorithm).items():
            numbers[f"{algorithm} against {label}"] = values
    return numbers


def untuned(runs: ClaimRuns, setup: OptimizerSetup) -> ClaimNumbers:
    """Accuracy at the defaults minus that of tuned others."""
    return runs.differences(setup, {label: runs.tuned(label) for label in ("GENIE", "Adam")})


def cost(runs: ClaimRuns) -> ClaimNumbers:
    """Seconds of a training step with GENIE over those with each other, by turns, one number a repeat.

    On a network of the usual kind where the sizes name one: on a tiny one the time goes to calling kernels.
    """
    data, config = runs.data, runs.config
    if network := runs.sizes.cost_network:
        data = open_data("styleshapes")
        config = replace(
            config, dataset=data.name, data_digest="", backbone=network, batch_size=8, image_size=64,
            test_domains=(0,),
        )  # fmt: skip
    parts = {label: assemble(one.on(config), data) for label, one in runs.optimizers.items()}
    batch = batch_of(parts["GENIE"].training.at(0))
    seconds: ClaimNumbers = {label: [] for label in parts}
    for repeat in range(runs.sizes.repeats + 1):
        for label, one in parts.items():
            start = time.perf_counter()
            for step in range(3):
                take_step(one.algorithm, one.optimizers, batch, StepContext(step))
            if repeat:  # the first warms up
                seconds[label].append(time.perf_counter() - start)
    mine = seconds.pop("GENIE")
    return {label: [a / b for a, b in zip(mine, values, strict=True)] for label, values in seconds.items()}


def convergence(runs: ClaimRuns) -> list[ClaimNumbers]:
    """The fitted exponent of GENIE in both formulations minus that of SGD, on the same noise, and the bound.

    The bound is that of the proof, log10 of it over the squared gradient at the start, for the longest horizon.
    """

    def genie(formulation: str) -> OptimizerFactory:
        return lambda parameters, horizon: GENIE(parameters, lr=step_size(horizon), formulation=formulation)

    makes: dict[str, OptimizerFactory] = {
        "SGD": lambda parameters, horizon: SGD(parameters, lr=step_size(horizon)),
        "released": genie("released"),
        "algorithm1": genie("algorithm1"),
    }
    horizons, seeds = runs.sizes.horizons, range(max(3, runs.sizes.seeds))

    def slope(make: OptimizerFactory, seed: int) -> float:
        return rate_slope(horizons, [average_gradient_norm(make, t, seed=seed) for t in horizons]).slope

    slopes = {name: [slope(make, seed) for seed in seeds] for name, make in makes.items()}
    bounds = [bound_of_run(makes["released"], horizons[-1], samples=HELD, seed=seed) for seed in seeds]
    start = 256 / 4  # 256 weights with a gradient of 1/2 each
    sgd = slopes.pop("SGD")
    rates = {
        f"{name} minus SGD": [a - b for a, b in zip(values, sgd, strict=True)]
        for name, values in slopes.items()
    }
    return [rates, {"released": [math.log10(bound / start) for bound in bounds]}]


HELD = 39
"""Samples that a moving average with beta 0.95 holds, (1 + beta) / (1 - beta)."""


def pac_bayes(runs: ClaimRuns) -> list[ClaimNumbers]:
    """Relative error of q g / rho^2 as the divergence's gradient, the next point fixed or moving along."""
    fixed: list[float] = []
    moving: list[float] = []
    for seed in range(max(3, runs.sizes.seeds)):
        stream = torch.Generator().manual_seed(seed)
        theta, g = torch.randn(2, 64, generator=stream, dtype=torch.float64)
        q, variance = torch.rand(2, 64, generator=stream, dtype=torch.float64) + 0.05
        theta.requires_grad_()
        claimed = kl_gradient(g, q, variance)
        for kept, following in ((fixed, (theta - q * g).detach()), (moving, theta - q * g)):
            (true,) = torch.autograd.grad(kl_divergence(following, theta, q, variance), theta)
            kept.append(float((true - claimed).norm() / claimed.norm()))
    return [{"the next point held fixed": fixed}, {"the next point moving along": moving}]


def corollary() -> ClaimNumbers:
    """R_GENIE - R_SGD at the counterexample; exact, so every trial would give the same number."""
    case = counterexample()
    return {"SGD, at the counterexample": [case.genie - case.sgd] * 2}


def genie_against(runs: ClaimRuns, *labels: str, **options: Any) -> ClaimNumbers:
    """GENIE's accuracy minus that of other optimizers, each tuned for the same task."""
    others = {label: runs.tuned(label, **options) for label in labels}
    return runs.differences(runs.tuned("GENIE", **options), others, **options)


MEASURES: tuple[tuple[tuple[str, ...], Callable[[ClaimRuns], list[ClaimNumbers]]], ...] = (
    (("accuracy",), lambda runs: [genie_against(runs, *OTHERS)]),
    (("preconditioning", "noise-and-mask"), parts_of_genie),
    (("robust",), lambda runs: [robust(runs)]),
    (("algorithms",), lambda runs: [other_algorithms(runs)]),
    (("one-source",), lambda runs: [genie_against(runs, *FOUR, one_source=True)]),
    (NAMES, along_training),
    (("theorem-accuracy",), lambda runs: [untuned(runs, THEOREM)]),
    (("scale-free",), lambda runs: [untuned(runs, SCALE_FREE)]),
    (("osgr-always",), lambda runs: [corollary()]),
    (("rate", "bound"), convergence),
    (("pac-bayes", "pac-bayes-moving"), pac_bayes),
    (("cost",), lambda runs: [cost(runs)]),
)
"""What is measured together: the names of the claims, and what gives the numbers of each."""
