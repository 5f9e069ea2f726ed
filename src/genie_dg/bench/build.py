"""From a configuration to its algorithm and optimizers, and the named streams of random numbers of a run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from genie_dg._types import Group, Network
from genie_dg.algorithms.algorithm import Algorithm
from genie_dg.algorithms.registry import ALGORITHMS
from genie_dg.check import InputError
from genie_dg.data.domains import Labels
from genie_dg.models.classifier import build_network
from genie_dg.optim.registry import OPTIMIZERS, build_optimizer
from genie_dg.registry import with_defaults
from genie_dg.runs.config import RunConfig
from genie_dg.search_space import checked, defaults


def seed_of(purpose: str, config: RunConfig) -> int:
    """A seed below 2^62 for one purpose of one (data set, test domains, trial).

    Splits, initial weights, batches and dropout depend on these alone. Two optimizers, or two algorithms,
    therefore start from the same weights and see the same samples; what differs between them is the update.
    The noise that an optimizer adds by itself has a stream of its own.

    >>> a = RunConfig("digits", (0,), optimizer="adam")
    >>> b = RunConfig("digits", (0,), optimizer="genie", dropout=0.1)
    >>> seed_of("batches", a) == seed_of("batches", b), seed_of("batches", a) == seed_of("weights", a)
    (True, False)
    """
    text = f"{purpose}/{config.dataset}/{list(config.test_domains)}/{config.trial_seed}"
    return int.from_bytes(hashlib.sha256(text.encode("utf-8")).digest()[:8], "big") >> 2


@contextmanager
def refusals() -> Iterator[None]:
    """What a part refuses when it is built, and a package it misses, are faults of the configuration."""
    try:
        yield
    except (ValueError, TypeError, ImportError) as error:
        raise InputError(str(error)) from error


def build_algorithm(
    config: RunConfig, classes: int, shape: tuple[int, int], sources: int, weights: str = ""
) -> Algorithm:
    """The network and its algorithm, with initial weights that depend on (data set, test domains, trial).

    Args:
        config: of the run.
        classes: how many there are.
        shape: channels and height of what the network sees.
        sources: how many domains train.
        weights: a local file of pretrained weights; empty for none.
    """
    channels, size = shape
    with refusals(), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed_of("weights", config))
        names = ("pretrained", "dropout", "freeze_statistics", "freeze")
        settings = {name: getattr(config, name) for name in names}
        file = Path(weights) if weights else None
        channels += ALGORITHMS[config.algorithm].extra_channels
        network = build_network(config.backbone, classes, channels, size, weights=file, **settings)
        return algorithm_on(network, config, sources)


def algorithm_on(network: Network, config: RunConfig, sources: int) -> Algorithm:
    """The algorithm of a run, which trains a network on so many domains."""
    row = ALGORITHMS[config.algorithm]
    given = checked(row.name, row.space, config.algorithm_settings)
    with refusals():
        built: Algorithm = row.build(network, sources, **with_defaults(row.name, defaults(row.space), given))
    return built


def balanced_weights(labels: Sequence[Labels], classes: int) -> Tensor:
    r"""Weights :math:`w_c = n / (k\, n_c)` of classes, whose mean over the samples is 1.

    Args:
        labels: of all samples that train, domain by domain; n in all, :math:`n_c` of class c.
        classes: how many there are; k of them have samples, and the others get the weight 0.

    >>> balanced_weights([np.array([0, 0]), np.array([0, 2])], 3).tolist()
    [0.6666666865348816, 0.0, 2.0]
    """
    counts = np.bincount(np.concatenate(list(labels)), minlength=classes)
    weights = np.where(counts > 0, counts.sum() / ((counts > 0).sum() * np.maximum(counts, 1)), 0.0)
    return torch.tensor(weights, dtype=torch.float32)


def build_optimizers(config: RunConfig, algorithm: Algorithm) -> dict[str, Optimizer]:
    """One optimizer for each role: the run's, unless the algorithm fixes the role's."""
    optimizers = {}
    for name, role in algorithm.roles().items():
        optimizer, settings = config.optimizer, _with_noise_seed(config, name)
        if role.optimizer is not None:
            optimizer, settings = role.optimizer, dict(role.settings)
        groups = _not_frozen(role.groups) if config.freeze else role.groups
        with refusals():
            optimizers[name] = build_optimizer(optimizer, groups, **settings)
    return optimizers


def _not_frozen(groups: Iterable[Group]) -> list[Group]:
    """The groups without parameters that do not train."""
    trained = [replace(g, parameters=tuple(p for p in g.parameters if p.requires_grad)) for g in groups]
    return [group for group in trained if group.parameters]


def _with_noise_seed(config: RunConfig, role: str) -> dict[str, object]:
    """The settings of the run's optimizer; one that draws noise by itself gets a stream of its own."""
    settings = dict(config.optimizer_settings)
    if "seed" in OPTIMIZERS[config.optimizer].space:
        settings.setdefault("seed", seed_of(f"noise/{role}", config) % 2**31)
    return settings


def usual_lr(config: RunConfig) -> float:
    """The default learning rate of the optimizer that takes the steps of a run."""
    space = OPTIMIZERS[config.optimizer].space
    if "base" in space:
        space = OPTIMIZERS[str(config.optimizer_settings.get("base", space["base"].default))].space
    return float(space["lr"].default)


def create_graph(config: RunConfig) -> bool:
    """Whether the optimizer of a run differentiates gradients."""
    return OPTIMIZERS[config.optimizer].create_graph


def whole_gradients(config: RunConfig) -> bool:
    """Whether gradients are used before the loop has averaged them over processes."""
    return ALGORITHMS[config.algorithm].inner_gradients or create_graph(config)
