"""From a configuration to the parts of a run: where data, models, algorithms and optimizers meet."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.optim import Optimizer

from genie_dg._types import MAIN
from genie_dg.algorithms.algorithm import Algorithm
from genie_dg.algorithms.registry import ALGORITHMS
from genie_dg.data.augment import Recipe
from genie_dg.data.cache import Cache, EvalSpec, TrainSpec, open_cache
from genie_dg.data.domains import Domain, DomainSet, PictureDomain, silent
from genie_dg.data.encoding import Encoding, encoded
from genie_dg.data.loaders import AugmentedEvaluation, Evaluation, Training
from genie_dg.data.place import Destination
from genie_dg.data.splits import DomainSplit, InOrder, Sampler, splits
from genie_dg.optim.registry import OPTIMIZERS
from genie_dg.runs.config import RunConfig

from . import checks
from .build import balanced_weights, build_algorithm, build_optimizers, seed_of
from .options import RunOptions
from .parallel import ALONE, World

EVALUATION_BATCH = 64
"""Pictures in a batch of an evaluation, as in DomainBed: MTL and ARM adapt to the batch that they predict."""


class DegenerateWarning(UserWarning):
    """An algorithm was asked for that says little or nothing with the domains it got."""


@dataclass(frozen=True)
class Parts:
    """Everything a run is made of; the network sees ``channels`` by ``size`` by ``size``, from decoded pictures
    or from tensors in memory.
    """

    config: RunConfig
    domains: tuple[str, ...]
    sources: tuple[int, ...]
    algorithm: Algorithm
    optimizers: dict[str, Optimizer]
    create_graph: bool
    training: Training
    evaluations: dict[tuple[int, str], Evaluation | AugmentedEvaluation]
    device: torch.device
    classes: tuple[str, ...]
    channels: int
    size: int
    pictures: bool
    world: World = ALONE
    encoding: Encoding | None = None  # of a table

    def meta(self) -> dict[str, Any]:
        """What a run's folder says of where it was trained."""
        return {"domains": list(self.domains), "torch": torch.__version__, "device": str(self.device)}


def assemble(
    config: RunConfig,
    data: DomainSet,
    options: RunOptions = RunOptions(),  # noqa: B008  # frozen
    progress: Callable[[str, int], None] | None = None,
    world: World = ALONE,
) -> Parts:
    """Everything a run needs, ready for its first step.

    Args:
        config: the run.
        data: the set it names, opened.
        options: how and where it happens.
        progress: called with (what, pictures done) while pictures are decoded into the cache.
        world: the processes that share the run.
    """
    checks.check_world(config, world)
    sources = checks.source_domains(config, data)
    checks.check_data(config, data)
    checks.check_identity(config, data, options)
    if len(sources) == 1 and (problem := ALGORITHMS[config.algorithm].one_source):
        warnings.warn(problem, DegenerateWarning, stacklevel=2)
    parts = splits(data, config.trial_seed)
    data, encoding = encoded(data, sources, parts)
    channels, size, pictures = checks.shape_of(data, config.image_size)
    device = torch.device(options.device or "cpu")
    loaders = _Loaders(config, data, sources, parts, options, progress)
    algorithm = loaders.algorithm((channels, size)).to(device)
    if config.fast:
        algorithm.to(memory_format=torch.channels_last)
    optimizers = build_optimizers(config, algorithm)
    checks.check_precision(config, optimizers[MAIN])
    return Parts(
        config=config,
        domains=tuple(domain.name for domain in data.domains),
        sources=sources,
        algorithm=algorithm,
        optimizers=optimizers,
        create_graph=OPTIMIZERS[config.optimizer].create_graph,
        training=loaders.training(),
        evaluations=loaders.evaluations(),
        device=device,
        classes=tuple(data.classes),
        channels=channels,
        size=size,
        pictures=pictures,
        world=world,
        encoding=encoding,
    )


@dataclass(frozen=True)
class _Loaders:
    """Where the batches of a run come from.

    Args:
        config: of the run.
        data: its set; rows of a table are encoded.
        sources: the domains that train.
        parts: of every domain.
        options: of the run.
        progress: as for `assemble`.
    """

    config: RunConfig
    data: DomainSet
    sources: tuple[int, ...]
    parts: list[DomainSplit]
    options: RunOptions
    progress: Callable[[str, int], None] | None

    @property
    def place(self) -> Destination:
        layout = torch.channels_last if self.config.fast else torch.contiguous_format
        return Destination.of(torch.device(self.options.device or "cpu"), layout)

    @property
    def recipe(self) -> Recipe:
        """DomainBed's augmentation, by the engine that the run names."""
        return Recipe(size=self.config.image_size, engine="opencv" if self.config.fast else "torch")

    def algorithm(self, shape: tuple[int, int]) -> Algorithm:
        """With its targets: label smoothing, and weights of classes."""
        config, classes = self.config, len(self.data.classes)
        checks.check_targets(config)
        algorithm = build_algorithm(config, classes, shape, len(self.sources), self.options.weights)
        algorithm.label_smoothing = config.label_smoothing
        if config.class_weights:
            labels = [self.data.domains[k].labels[self.parts[k].inside] for k in self.sources]
            algorithm.class_weights = balanced_weights(labels, classes)
        return algorithm

    def training(self) -> Training:
        """The batches of all training domains."""
        config, domains = self.config, self.data.domains
        seed = seed_of("batches", config)
        return Training(
            [domains[k] for k in self.sources],
            [Sampler(self.parts[k].inside, config.batch_size, seed, k) for k in self.sources],
            recipe=self.recipe if self.data.in_files and config.augment else None,
            caches=[self._cache(domains[k], TrainSpec()) if config.augment else None for k in self.sources],
            size=config.image_size,
            place=self.place,
        )

    def evaluations(self) -> dict[tuple[int, str], Evaluation | AugmentedEvaluation]:
        """The parts of domains that are evaluated, by index of the domain and name of the part."""
        return {
            (k, part): self._evaluation(k, part)
            for k in range(len(self.data.domains))
            for part in ("in", "out")
            if self.options.evaluate == "all" or part == "out" or k not in self.sources
        }

    def _evaluation(self, index: int, part: str) -> Evaluation | AugmentedEvaluation:
        """The samples of one part of a domain, with the training augmentation where the protocol wants it."""
        config, domain = self.config, self.data.domains[index]
        rows = self.parts[index].inside if part == "in" else self.parts[index].outside
        size, place = EVALUATION_BATCH, self.place
        augmented = config.eval_augment == "train" or (config.eval_augment == "train-in" and part == "in")
        if augmented and index in self.sources and config.augment and isinstance(domain, PictureDomain):
            order = InOrder(rows, size, seed_of("evaluation", config), index)
            cache = self._cache(domain, TrainSpec())
            return AugmentedEvaluation(domain, order, self.recipe, cache=cache, place=place)
        cache = self._cache(domain, EvalSpec(config.image_size))
        return Evaluation(domain, rows, size=config.image_size, cache=cache, batch_size=size, place=place)

    def _cache(self, domain: Domain, spec: EvalSpec | TrainSpec) -> Cache | None:
        progress = self.progress
        if not self.options.cache or not isinstance(domain, PictureDomain):
            return None
        report = silent if progress is None else (lambda done: progress(domain.name, done))
        return open_cache(domain, spec, Path(self.options.cache), report)
