"""What cannot be run is refused before anything starts, in a sentence that says what to change.

`assemble` checks one run with its data. `try_out` builds every kind of run of a sweep once, without its data
and without its memory: networks and algorithms on torch's meta device, whose tensors have shapes and no
numbers, and the first loss is asked for there; optimizers on a parameter of one number.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from genie_dg._types import DomainBatch, Group, Network, StepContext
from genie_dg.algorithms.registry import ALGORITHMS
from genie_dg.check import GenieError, InputError
from genie_dg.data.domains import DomainSet, TableDomain
from genie_dg.models.backbones import BACKBONES, find_backbone
from genie_dg.models.classifier import build_network
from genie_dg.optim.passes import Passes
from genie_dg.optim.registry import OPTIMIZERS, build_optimizer
from genie_dg.runs.config import RunConfig
from genie_dg.runs.seal import digest_of

from .build import algorithm_on, refusals
from .options import RunOptions
from .parallel import World

_SAMPLES = 8
"""Samples of a domain that are enough for any algorithm; a trial computes with no more."""


def source_domains(config: RunConfig, data: DomainSet) -> tuple[int, ...]:
    """The domains that train: all that are not tested on."""
    names = [domain.name for domain in data.domains]
    wrong = [index for index in config.test_domains if not 0 <= index < len(names)]
    listed = ", ".join(f"{k} ({name})" for k, name in enumerate(names))
    if wrong:
        raise InputError(f"{data.name} has no test domain {wrong[0]}; its domains are {listed}.")
    sources = tuple(k for k in range(len(names)) if k not in config.test_domains)
    if not sources:
        raise InputError(f"All domains of {data.name} are tested on ({listed}); leave one to train on.")
    return sources


def weights_digest(weights: str) -> str:
    """Sixteen hexadecimal digits that name the contents of a file of weights; empty for no file."""
    try:
        return digest_of(Path(weights))[:16] if weights else ""
    except OSError as error:
        reason = error.strerror or "it is not a file"
        raise InputError(f"{weights} cannot be read ({reason}); name a file of weights.") from error


def check_identity(config: RunConfig, data: DomainSet, options: RunOptions) -> None:
    """A configuration that names its data and weights by their contents is used with these alone."""
    here = data.digest() if config.data_digest else ""
    for what, digest, wanted in (
        (config.dataset, here, config.data_digest),
        ("weights (--weights)", weights_digest(options.weights), config.weights_digest),
    ):
        if digest != wanted:
            made = f"This run was made for {what} with digest {wanted or 'none'}, got {digest or 'none'}"
            raise InputError(f"{made}; give it the files it was made for, or start a new run.")


def check_precision(config: RunConfig, main: Optimizer) -> None:
    """Refuse what float16 cannot do: its scaled losses reach neither second derivatives nor inner gradients."""
    if config.precision != "float16":
        return
    algorithm, optimizer = ALGORITHMS[config.algorithm], OPTIMIZERS[config.optimizer]
    closure = optimizer.passes > 1 and not isinstance(main, Passes)
    if algorithm.inner_gradients or optimizer.create_graph or closure:
        name = algorithm.name if algorithm.inner_gradients else optimizer.name
        raise InputError(f"got precision=float16, which {name} cannot use; choose bfloat16 or float32.")


def check_world(config: RunConfig, world: World) -> None:
    """Refuse what several processes cannot share without changing the result."""
    n, row = world.size, ALGORITHMS[config.algorithm]
    if n > 1 and row.one_process:
        raise InputError(f"got {n} processes for {row.name}, but {row.one_process}; train it without torchrun.")
    if config.batch_size < n:
        raise InputError(f"got batch_size={config.batch_size} for {n} processes; expected {n} or more.")


def check_data(config: RunConfig, data: DomainSet) -> None:
    """Every domain needs a sample to hold back, and rows of a table a network that takes them."""
    for domain in data.domains:
        if len(domain) < 5:
            raise InputError(f"The domain {domain.name} has {len(domain)} samples; it needs 5 or more.")
    if data.is_table and not find_backbone(config.backbone).flat:
        able = " or ".join(row.name for row in BACKBONES.values() if row.flat)
        raise InputError(f"got backbone={config.backbone} for a table; expected a network for rows, {able}.")


def check_targets(config: RunConfig) -> None:
    """Refuse label smoothing and weights of classes where they would change one part of the loss only."""
    row = ALGORITHMS[config.algorithm]
    used = {name: getattr(config, name) for name in ("label_smoothing", "class_weights")}
    asked = " and ".join(f"{name}={value}" for name, value in used.items() if value)
    if asked and row.plain_loss:
        raise InputError(
            f"got {asked} for {row.name}, which can have neither: {row.plain_loss}; leave them out."
        )


def shape_of(data: DomainSet, image_size: int) -> tuple[int, int, bool]:
    """Channels and height of what the network will see, and whether samples are pictures to decode."""
    first = data.domains[0]
    if isinstance(first, TableDomain):
        return first.columns.width, 1, False
    sample = first.read(0)
    if isinstance(sample, torch.Tensor):
        return int(sample.shape[0]), int(sample.shape[-1]), False
    return 3, image_size, True


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
        check_targets(config)
        optimizer = _key(config, "algorithm", "optimizer", "optimizer_settings", "precision")
        if optimizer not in tried:
            check_precision(config, _tiny_optimizer(config.optimizer, config.optimizer_settings))
        extra = ALGORITHMS[config.algorithm].extra_channels
        network = f"{extra} {_key(config, 'dataset', 'backbone', 'image_size', 'freeze')}"
        samples = min(config.batch_size, _SAMPLES)
        kind = f"{network} {sources} {samples} {_key(config, 'algorithm', 'algorithm_settings')}"
        if kind not in tried:
            check_data(config, data)
            channels, size, _ = shape_of(data, config.image_size)
            shape = len(data.classes), channels + extra, size
            with refusals(), torch.device("meta"):
                if network not in networks:
                    networks[network] = build_network(config.backbone, *shape, freeze=config.freeze)
                _try_algorithm(networks[network], config, [(samples, channels, size, size)] * sources)
        tried |= {optimizer, kind}


def _key(config: RunConfig, *names: str) -> str:
    return json.dumps([getattr(config, name) for name in names], sort_keys=True)


def _try_algorithm(network: Network, config: RunConfig, shapes: Sequence[tuple[int, ...]]) -> None:
    """Build the algorithm of a run and the optimizers that it fixes, and compute the first loss.

    Code that must see numbers, which the meta device lacks, ends the trial and is left to the run.
    """
    try:
        algorithm = algorithm_on(network, config, len(shapes))
        for role in algorithm.roles().values():
            if role.optimizer is not None:
                _tiny_optimizer(role.optimizer, role.settings)
        images = tuple(torch.empty(shape) for shape in shapes)
        labels = tuple(torch.empty(shape[0], dtype=torch.int64) for shape in shapes)
        with torch.device("cpu"):  # where algorithms draw their random numbers
            next(algorithm.objectives(DomainBatch(images, labels), StepContext(0))).loss()
    except GenieError:
        raise
    except RuntimeError:
        return


def _tiny_optimizer(name: str, settings: Mapping[str, Any]) -> Optimizer:
    with refusals(), torch.device("cpu"):
        return build_optimizer(name, [Group((nn.Parameter(torch.zeros(1)),))], **settings)
