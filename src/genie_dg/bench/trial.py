"""Refuse before anything starts: every kind of run is built once, without its data and without its memory.

Networks and algorithms are built on torch's meta device, whose tensors have shapes and no numbers, and the
first loss is asked for there; so a network that an algorithm cannot use is refused in a moment, whatever its
size. Optimizers are built on a parameter of one number.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from genie_dg._types import MAIN, DomainBatch, Group, Network, StepContext
from genie_dg.algorithms.algorithm import Algorithm
from genie_dg.algorithms.registry import ALGORITHMS
from genie_dg.check import GenieError
from genie_dg.data.domains import DomainSet
from genie_dg.models.classifier import build_network
from genie_dg.optim.registry import build_optimizer
from genie_dg.runs.config import RunConfig

from .assemble import (
    algorithm_on,
    check_network,
    check_precision,
    check_sizes,
    refusals,
    shape_of,
    source_domains,
)
from .targets import check_targets, targets_of

LEAST = 8
"""Samples of a domain that are enough for any algorithm; a trial has no more."""


def try_out(configs: Iterable[RunConfig], sets: Mapping[str, DomainSet]) -> None:
    """Build every kind of run once; what cannot be is refused with the sentence of the part that refuses.

    Args:
        configs: the runs.
        sets: the data sets that they name, opened.
    """
    tried: set[str] = set()
    networks: dict[str, Network] = {}
    for config in configs:
        data = sets[config.dataset]
        sources = len(source_domains(config, data))
        network = json.dumps(
            [config.dataset, config.backbone, config.image_size, config.freeze, _extra_channels(config)]
        )
        step = json.dumps(
            [network, sources, config.algorithm, min(config.batch_size, LEAST), targets_of(config)]
        )
        settings = json.dumps([network, sources, config.algorithm, config.algorithm_settings], sort_keys=True)
        optimizer = json.dumps(
            [config.algorithm, config.optimizer, config.optimizer_settings, config.precision], sort_keys=True
        )
        check_targets(config)
        if network not in tried:
            check_sizes(data)
            check_network(config, data)
            with _shapes_alone():
                networks[network] = _network(config, data)
        if network in networks and not {step, settings} <= tried:
            with _shapes_alone():
                _try_algorithm(networks[network], config, data, sources, step not in tried)
        if optimizer not in tried:
            check_precision(config, _tiny_optimizer(config.optimizer, config.optimizer_settings))
        tried |= {network, step, settings, optimizer}


@contextmanager
def _shapes_alone() -> Iterator[None]:
    """Tensors without numbers; code that must see numbers ends the trial here and is left to the run."""
    try:
        with torch.device("meta"):
            yield
    except GenieError:
        raise
    except RuntimeError:
        return


def _extra_channels(config: RunConfig) -> int:
    return ALGORITHMS[config.algorithm].extra_channels


def _network(config: RunConfig, data: DomainSet) -> Network:
    channels, size, _ = shape_of(data, config.image_size)
    with refusals():
        return build_network(
            config.backbone, len(data.classes), channels + _extra_channels(config), size, freeze=config.freeze
        )


def _try_algorithm(network: Network, config: RunConfig, data: DomainSet, sources: int, step: bool) -> None:
    """Build the algorithm and its own optimizers and, if asked, compute the first loss of a run."""
    algorithm = algorithm_on(network, config, sources)
    for role in algorithm.roles().values():
        if role.optimizer is not None:
            _tiny_optimizer(role.optimizer, role.settings)
    if step:
        channels, size, _ = shape_of(data, config.image_size)
        shape = min(config.batch_size, LEAST), channels, size, size
        images = tuple(torch.empty(shape) for _ in range(sources))
        labels = tuple(torch.empty(shape[0], dtype=torch.int64) for _ in images)
        with torch.device("cpu"), _counted(algorithm) as calls:  # where algorithms draw their random numbers
            first = next(algorithm.objectives(DomainBatch(images, labels), StepContext(0)))
            first.loss()
        check_targets(config, first.role != MAIN or bool(calls))  # an adversary may know of domains alone


@contextmanager
def _counted(algorithm: Algorithm) -> Iterator[list[None]]:
    """Inside, an entry for each call of the algorithm's `Algorithm.classification_loss`."""
    calls: list[None] = []
    usual = algorithm.classification_loss

    def counted(logits: Tensor, labels: Tensor, reduction: str = "mean") -> Tensor:
        calls.append(None)
        return usual(logits, labels, reduction)

    algorithm.classification_loss = counted  # type: ignore[method-assign]  # of this trial alone
    yield calls


def _tiny_optimizer(name: str, settings: Mapping[str, Any]) -> Optimizer:
    with refusals(), torch.device("cpu"):
        return build_optimizer(name, [Group((nn.Parameter(torch.zeros(1)),))], **settings)
