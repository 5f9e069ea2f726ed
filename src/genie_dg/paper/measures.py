"""How each claim is measured: functions from `ClaimRuns` to numbers, one for each seed and part of a claim."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import fmean
from typing import Any

import torch
from torch import nn
from torch.optim import SGD

from genie_dg._types import MAIN, StepContext
from genie_dg.bench.assemble import assemble
from genie_dg.bench.step import batch_of, take_step
from genie_dg.data.domains import DomainSet
from genie_dg.data.registry import open_data
from genie_dg.diagnostics.claims import counterexample
from genie_dg.diagnostics.convergence import average_gradient_norm, rate_slope, step_size
from genie_dg.diagnostics.measured import measure_osgr
from genie_dg.diagnostics.osgr import osgr_of_batch
from genie_dg.diagnostics.pac_bayes import kl_divergence, kl_gradient
from genie_dg.diagnostics.preconditioners import Preconditioner, preconditioner
from genie_dg.diagnostics.updates import UpdateRecorder
from genie_dg.optim.genie import GENIE
from genie_dg.runs.record import RunConfig

from .claim_runs import ClaimNumbers, ClaimRuns, against
from .figure_setup import OptimizerSetup, cross_entropy, halves, samples
from .runs import train_in_memory

OTHERS = ("SGD", "Adam", "SAM")

SCALE_FREE = OptimizerSetup("scale_free", "genie", {"scale_free": True})
THEOREM = OptimizerSetup("eq. 5", "genie", {"scale_free": True, "formulation": "theorem"})
"""What is not in the paper, and what its theory asks for; neither has a rate to tune."""


def only_preconditioning(runs: ClaimRuns) -> OptimizerSetup:
    """GENIE without noise and mask, at GENIE's learning rate."""
    return replace(runs.tuned("GENIE").having(noise=False, dropout=0.0), label="preconditioning")


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
        numbers[f"{algorithm} against Adam"] = genie_against(runs, "Adam", algorithm=algorithm)["Adam"]
    return numbers


def dynamics(runs: ClaimRuns) -> list[ClaimNumbers]:
    """GENIE minus each other: OSGR by the definition, in the theorem's form, and the updates' Gini; then eq. 5
    minus each other: OSGR in the theorem's form at the weights of GENIE's run, and the updates' Gini.

    The definition's number of a run is the sum of gains on D' over the sum of gains on D, over all points where
    it is measured; the others are means over these points.
    """
    training, measuring = halves(runs.data)
    numbers: dict[str, ClaimNumbers] = {"definition": {}, "theorem": {}, "gini": {}}
    same: ClaimNumbers = {}
    every = max(1, runs.config.steps // runs.sizes.osgr_points)
    for setup in (*map(runs.tuned, ("SGD", "Adam", "SAM", "GENIE")), THEOREM):
        for seed in runs.seeds:
            config = replace(runs.config_of(setup, seed), data_digest="")  # of halves
            sources = [k for k in range(len(runs.data.domains)) if k not in config.test_domains]
            pool = samples(measuring, sources, config.image_size, runs.sizes.pool)
            n = config.batch_size * len(sources)
            of_run, at_weights = _dynamics_of(config, training, pool, every, n, setup.label == "GENIE")
            for name, value in of_run.items():
                numbers[name].setdefault(setup.label, []).append(value)
            for name, value in at_weights.items():
                same.setdefault(name, []).append(value)
    published = {
        name: {label: values for label, values in of_all.items() if label != THEOREM.label}
        for name, of_all in numbers.items()
    }
    claims = [against(published[name]) for name in ("definition", "theorem", "gini")]
    return [*claims, against(same, THEOREM.label), against(numbers["gini"], THEOREM.label)]


def _dynamics_of(
    config: RunConfig,
    data: DomainSet,
    pool: tuple[torch.Tensor, torch.Tensor],
    every: int,
    n: int,
    compare: bool,
) -> tuple[dict[str, float], dict[str, float]]:
    """The three numbers of one training (SAM has no preconditioner of the theorem's kind), and if asked for the
    OSGR of several preconditioners at its weights.
    """
    gains: list[tuple[float, float]] = []
    theorem: list[float] = []
    ginis: list[float] = []
    same: dict[str, list[float]] = {}
    for step, parts in train_in_memory(config, data):
        model, optimizer = parts.algorithm.network, parts.optimizers[MAIN]
        if step == 0:
            recorder = UpdateRecorder(model, bins=1)
        elif step % every == 0:
            ginis.append(recorder.record(step).get("gini", math.nan))
            osgr = measure_osgr(model, optimizer, cross_entropy, pool, n)
            gains.append((osgr.gain_on_other, osgr.gain_on_d))
            if config.optimizer != "sam":
                p = preconditioner(optimizer, model)
                theorem.append(osgr_of_batch(model, cross_entropy, pool, p, n=n).value)
            for name, p in (_at_these_moments(optimizer, model) if compare else {}).items():
                same.setdefault(name, []).append(osgr_of_batch(model, cross_entropy, pool, p, n=n).value)
    on_other, on_d = (math.fsum(column) for column in zip(*gains, strict=True))
    numbers = {"definition": on_other / on_d, "gini": fmean(ginis)}
    numbers |= {"theorem": fmean(theorem)} if theorem else {}
    return numbers, {name: fmean(values) for name, values in same.items()}


def _at_these_moments(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Preconditioner]:
    """What the rules make of the same two moments: those of GENIE's run."""
    released = preconditioner(optimizer, model)
    formulations = [group["formulation"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["formulation"] = "theorem"
    asked = preconditioner(optimizer, model)
    for group, formulation in zip(optimizer.param_groups, formulations, strict=True):
        group["formulation"] = formulation
    second = {name: optimizer.state[p]["exp_avg_sq"] for name, p in model.named_parameters() if p.requires_grad}
    return {
        THEOREM.label: asked,
        "GENIE": released,
        "SGD": Preconditioner({name: torch.ones_like(v) for name, v in second.items()}, "ones"),
        "Adam": Preconditioner({name: 1 / (v.sqrt() + 1e-8) for name, v in second.items()}, "second moments"),
    }


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


def convergence_rate(runs: ClaimRuns) -> ClaimNumbers:
    """The fitted exponent of GENIE minus that of SGD, on the same noise."""

    def sgd(parameters: list[nn.Parameter], horizon: int) -> torch.optim.Optimizer:
        return SGD(parameters, lr=step_size(horizon))

    def genie(parameters: list[nn.Parameter], horizon: int) -> torch.optim.Optimizer:
        return GENIE(parameters, lr=step_size(horizon))

    horizons, differences = runs.sizes.horizons, []
    for seed in range(min(max(3, runs.sizes.seeds), 12)):
        slopes = [
            rate_slope(horizons, [average_gradient_norm(make, t, seed=seed) for t in horizons]).slope
            for make in (genie, sgd)
        ]
        differences.append(slopes[0] - slopes[1])
    return {"SGD": differences}


def pac_bayes(runs: ClaimRuns) -> list[ClaimNumbers]:
    """Relative error of q g / rho^2 as the divergence's gradient, the next point fixed or moving along."""
    fixed: list[float] = []
    moving: list[float] = []
    for seed in range(min(max(3, runs.sizes.seeds), 12)):
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
    """GENIE's accuracy minus that of other optimizers."""
    return runs.differences(runs.tuned("GENIE"), {label: runs.tuned(label) for label in labels}, **options)


MEASURES: tuple[tuple[tuple[str, ...], Callable[[ClaimRuns], list[ClaimNumbers]]], ...] = (
    (("accuracy",), lambda runs: [genie_against(runs, *OTHERS)]),
    (
        ("preconditioning",),
        lambda runs: [runs.differences(only_preconditioning(runs), {"Adam": runs.tuned("Adam")})],
    ),
    (
        ("noise-and-mask",),
        lambda runs: [
            runs.differences(runs.tuned("GENIE"), {"preconditioning alone": only_preconditioning(runs)})
        ],
    ),
    (("robust",), lambda runs: [robust(runs)]),
    (("algorithms",), lambda runs: [other_algorithms(runs)]),
    (("one-source",), lambda runs: [genie_against(runs, "Adam", one_source=True)]),
    (("osgr", "osgr-preconditioner", "balance", "theorem-osgr", "theorem-balance"), dynamics),
    (("theorem-accuracy",), lambda runs: [untuned(runs, THEOREM)]),
    (("scale-free",), lambda runs: [untuned(runs, SCALE_FREE)]),
    (("osgr-always",), lambda runs: [corollary()]),
    (("rate",), lambda runs: [convergence_rate(runs)]),
    (("pac-bayes", "pac-bayes-moving"), pac_bayes),
    (("cost",), lambda runs: [cost(runs)]),
)
"""What is measured together: the names of the claims, and what gives the numbers of each."""
