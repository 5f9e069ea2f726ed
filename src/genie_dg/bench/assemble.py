"""From a configuration to the parts of a run: where data, models, algorithms and optimizers meet."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch.optim import Optimizer

from genie_dg._types import MAIN, Group, Network
from genie_dg.algorithms.algorithm import Algorithm, AlgorithmRow
from genie_dg.algorithms.registry import ALGORITHMS
from genie_dg.check import InputError
from genie_dg.data.augment import Recipe
from genie_dg.data.cache import Cache, EvalSpec, TrainSpec, open_cache
from genie_dg.data.domains import Domain, DomainSet, Labels, PictureDomain, TableDomain, silent
from genie_dg.data.encoding import Encoding, encoded
from genie_dg.data.loaders import AugmentedEvaluation, Evaluation, Training
from genie_dg.data.place import Destination
from genie_dg.data.splits import InOrder, Sampler, splits
from genie_dg.models.backbones import BACKBONES, find_backbone
from genie_dg.models.classifier import build_network
from genie_dg.optim.passes import Passes
from genie_dg.optim.registry import OPTIMIZERS, build_optimizer
from genie_dg.registry import with_defaults
from genie_dg.runs.config import RunConfig
from genie_dg.search_space import checked, defaults

from .options import RunOptions
from .parallel import World
from .seeds import seed_of
from .step import ALONE
from .targets import set_targets

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


@contextmanager
def refusals() -> Iterator[None]:
    """What a part refuses when it is built, and a package it misses, are faults of the configuration."""
    try:
        yield
    except (ValueError, TypeError, ImportError) as error:
        raise InputError(str(error)) from error


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


def digest_of(path: Path) -> str:
    """Sixteen hexadecimal digits that name the contents of a file."""
    digest = hashlib.sha256()
    if path.exists() and not path.is_file():
        raise InputError(f"{path} is not a file; name a file of weights.")
    try:
        with path.open("rb") as file:
            while block := file.read(2**20):
                digest.update(block)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); name a file of weights.") from error
    return digest.hexdigest()[:16]


def check_identity(config: RunConfig, data: DomainSet, options: RunOptions) -> None:
    """A configuration that names its data and weights by their contents is used with these alone."""
    digest = data.digest() if config.data_digest else ""
    if digest != config.data_digest:
        raise InputError(
            f"This run was made for {config.dataset} with digest {config.data_digest}, and what is here has "
            f"{digest}; give it the files it was made for, or start a new run."
        )
    digest = digest_of(Path(options.weights)) if options.weights else ""
    if digest != config.weights_digest:
        raise InputError(
            f"This run was made for weights with digest {config.weights_digest or 'none'}, and what is here "
            f"has {digest or 'none'}; name the right file with --weights, or start a new run."
        )


def check_precision(config: RunConfig, main: Optimizer) -> None:
    """Refuse what float16 cannot do: its scaled losses reach neither second derivatives nor inner gradients."""
    if config.precision != "float16":
        return
    algorithm, optimizer = ALGORITHMS[config.algorithm], OPTIMIZERS[config.optimizer]
    reason = ""
    if algorithm.inner_gradients:
        reason = f"{algorithm.name} computes gradients of its own, from losses that are not scaled"
    elif optimizer.create_graph:
        reason = f"{optimizer.name} differentiates the gradient, and the scaling stays in the second derivative"
    elif optimizer.needs_closure and not isinstance(main, Passes):
        reason = f"{optimizer.name} needs the closure, which torch's GradScaler does not pass on"
    if reason:
        raise InputError(f"got precision=float16, but {reason}; choose bfloat16 or float32.")


def check_world(config: RunConfig, world: World) -> None:
    """Refuse what several processes cannot share without changing the result."""
    if world.size == 1:
        return
    row = ALGORITHMS[config.algorithm]
    if row.one_process:
        raise InputError(
            f"got {world.size} processes for {row.name}, which needs one, because {row.one_process}; train it "
            "without torchrun."
        )
    if config.batch_size < world.size:
        raise InputError(
            f"got batch_size={config.batch_size} for {world.size} processes; expected {world.size} samples of "
            "each domain or more, one for each process."
        )


def check_sizes(data: DomainSet) -> None:
    """Every domain needs a sample to hold back."""
    for domain in data.domains:
        if len(domain) < 5:
            raise InputError(
                f"The domain {domain.name} of {data.name} has {len(domain)} samples; a fifth is held back to "
                "validate, so a domain needs 5 or more."
            )


def check_network(config: RunConfig, data: DomainSet) -> None:
    """Rows of a table need a network that takes them."""
    if data.is_table and not find_backbone(config.backbone).flat:
        able = " or ".join(row.name for row in BACKBONES.values() if row.flat)
        raise InputError(
            f"got backbone={config.backbone} for {data.name}, a table of numbers; expected a network that "
            f"takes rows, {able}."
        )


def say_if_degenerate(row: AlgorithmRow, sources: int) -> None:
    """Warn, once a run, of an algorithm that has nothing to compare."""
    if sources == 1 and row.one_source:
        warnings.warn(row.one_source, DegenerateWarning, stacklevel=2)


def build_algorithm(
    config: RunConfig, classes: int, channels: int, image_size: int, sources: int, weights: str = ""
) -> Algorithm:
    """The network and its algorithm, with initial weights that depend on (data set, test domains, trial)."""
    channels += ALGORITHMS[config.algorithm].extra_channels
    with refusals(), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed_of("weights", config))
        network = build_network(
            config.backbone,
            classes,
            channels,
            image_size,
            pretrained=config.pretrained,
            weights=Path(weights) if weights else None,
            dropout=config.dropout,
            freeze_statistics=config.freeze_statistics,
            freeze=config.freeze,
        )
        return algorithm_on(network, config, sources)


def algorithm_on(network: Network, config: RunConfig, sources: int) -> Algorithm:
    """The algorithm of a run, which trains a network on so many domains."""
    row = ALGORITHMS[config.algorithm]
    given = checked(row.name, row.space, config.algorithm_settings)
    with refusals():
        built: Algorithm = row.build(network, sources, **with_defaults(row.name, defaults(row.space), given))
    return built


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
    left = [replace(g, parameters=tuple(p for p in g.parameters if p.requires_grad)) for g in groups]
    return [group for group in left if group.parameters]


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
        base = config.optimizer_settings.get("base", space["base"].default)
        space = OPTIMIZERS[str(base)].space
    return float(space["lr"].default)


def create_graph(config: RunConfig) -> bool:
    return OPTIMIZERS[config.optimizer].create_graph


def whole_gradients(config: RunConfig) -> bool:
    """Whether gradients are used before the loop has averaged them over processes."""
    return ALGORITHMS[config.algorithm].inner_gradients or create_graph(config)


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
    check_world(config, world)
    sources = source_domains(config, data)
    check_sizes(data)
    check_network(config, data)
    check_identity(config, data, options)
    say_if_degenerate(ALGORITHMS[config.algorithm], len(sources))
    device = torch.device(options.device or "cpu")
    parts = splits(data, config.trial_seed)
    data, encoding = encoded(data, sources, parts)
    channels, size, pictures = shape_of(data, config.image_size)
    algorithm = build_algorithm(config, len(data.classes), channels, size, len(sources), options.weights)
    labels = [data.domains[k].labels[parts[k].inside] for k in sources]
    set_targets(algorithm, config, labels, len(data.classes))
    algorithm.to(device)
    place = Destination.of(device, torch.channels_last if config.fast else torch.contiguous_format)
    if config.fast:
        algorithm.to(memory_format=place.layout)
    training = Training(
        [data.domains[k] for k in sources],
        [Sampler(parts[k].inside, config.batch_size, seed_of("batches", config), k) for k in sources],
        recipe=recipe_of(config) if data.in_files and config.augment else None,
        caches=[
            _cache(data.domains[k], TrainSpec(), options, progress) if config.augment else None for k in sources
        ],
        size=config.image_size,
        place=place,
    )
    evaluations = {
        (k, part): _evaluation(config, data.domains[k], k, part, rows, k in sources, place, options, progress)
        for k in range(len(data.domains))
        for part, rows in (("in", parts[k].inside), ("out", parts[k].outside))
        if options.evaluate == "all" or part == "out" or k not in sources
    }
    optimizers = build_optimizers(config, algorithm)
    check_precision(config, optimizers[MAIN])
    return Parts(
        config,
        tuple(domain.name for domain in data.domains),
        sources,
        algorithm,
        optimizers,
        create_graph(config),
        training,
        evaluations,
        device,
        tuple(data.classes),
        channels,
        size,
        pictures,
        world,
        encoding,
    )


def recipe_of(config: RunConfig) -> Recipe:
    """DomainBed's augmentation, by the engine that the run names."""
    return Recipe(size=config.image_size, engine="opencv" if config.fast else "torch")


def _evaluation(
    config: RunConfig,
    domain: Domain,
    index: int,
    part: str,
    rows: Labels,
    trained_on: bool,
    place: Destination,
    options: RunOptions,
    progress: Callable[[str, int], None] | None,
) -> Evaluation | AugmentedEvaluation:
    """The samples of one part of a domain, with the training augmentation where the protocol wants it."""
    augmented = config.eval_augment == "train" or (config.eval_augment == "train-in" and part == "in")
    if augmented and trained_on and config.augment and isinstance(domain, PictureDomain):
        cache = _cache(domain, TrainSpec(), options, progress)
        order = InOrder(rows, EVALUATION_BATCH, seed_of("evaluation", config), index)
        return AugmentedEvaluation(domain, order, recipe_of(config), cache=cache, place=place)
    cache = _cache(domain, EvalSpec(config.image_size), options, progress)
    return Evaluation(
        domain, rows, size=config.image_size, cache=cache, batch_size=EVALUATION_BATCH, place=place
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


def _cache(
    domain: Domain, spec: EvalSpec | TrainSpec, options: RunOptions, progress: Callable[[str, int], None] | None
) -> Cache | None:
    if not options.cache or not isinstance(domain, PictureDomain):
        return None
    report = silent if progress is None else (lambda done: progress(domain.name, done))
    return open_cache(domain, spec, Path(options.cache), report)
