"""Our updates beside those of DomainBed's own code, from a checkout of it, which no twin of ours replaces.

``python -m tests.oracle.domainbed CHECKOUT`` prints for every algorithm that claims agreement the largest
relative difference of a tensor of weights after 20 steps of Adam in float64. DomainBed is read from the
checkout (github.com/facebookresearch/DomainBed; compared were the updates of commit b93c22a) and is not a part
of this project. Where its Fishr takes gradients of single samples from BackPACK, autograd takes its place.
"""

from __future__ import annotations

import copy
import importlib
import sys
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from genie_dg._types import DomainBatch, Edit, Network, StepContext
from genie_dg.algorithms.algorithm import Algorithm
from genie_dg.algorithms.registry import ALGORITHMS
from genie_dg.bench.assemble import build_optimizers
from genie_dg.bench.step import take_step
from genie_dg.registry import with_defaults
from genie_dg.runs.record import RunConfig
from genie_dg.search_space import defaults, published_name

STEPS, DOMAINS, SAMPLES, CLASSES, LR = 20, 3, 8, 5, 1e-3
ABSENT = ("timm", "torchvision", "torchvision.models", "wilds")
"""Packages that DomainBed imports and small images do not need; an empty module stands in for a missing one."""


class Wrapped(Network):
    """DomainBed's featurizer and a linear layer as one of our networks."""

    points = ()
    point_channels: Mapping[str, int] = {}

    def __init__(self, featurizer: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.featurizer, self.head = featurizer, head
        self.feature_size, self.classes = 128, CLASSES

    def features(self, images: Tensor, edits: Mapping[str, Edit] | None = None) -> Tensor:
        z: Tensor = self.featurizer(images)
        return z


@dataclass(frozen=True)
class Comparison:
    """How one algorithm is compared.

    Args:
        theirs: its name in DomainBed.
        settings: ours, where not the defaults.
        hparams: theirs, where they differ from our settings.
        first_step: the number of our first step; theirs is always its first.
        betas: of the network's Adam.
        same_numbers: gives DomainBed our random numbers of a step.
        weights: pairs of modules whose initial weights must be the same, beyond network and head.
    """

    theirs: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    hparams: Mapping[str, Any] = field(default_factory=dict)
    first_step: int = 0
    betas: tuple[float, float] = (0.9, 0.999)
    same_numbers: Callable[[types.ModuleType, Algorithm, DomainBatch, StepContext], Any] | None = None
    weights: Callable[[Any, Any], list[tuple[nn.Module, nn.Module]]] = lambda ours, theirs: []


def load(checkout: Path) -> types.ModuleType:
    """DomainBed's algorithms."""
    if not (checkout / "domainbed" / "algorithms.py").is_file():
        raise SystemExit(f"{checkout} is not a checkout of DomainBed; it has no domainbed/algorithms.py.")
    for name in ABSENT:
        try:
            importlib.import_module(name)
        except ImportError:
            sys.modules[name] = _Stub(name)
    sys.path.insert(0, str(checkout))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escape sequences in its docstrings
        module = importlib.import_module("domainbed.algorithms")
    vars(module).update(backpack=module, extend=lambda part: part)
    module.Fishr._get_grads = _gradients_of_samples
    return module


def _gradients_of_samples(fishr: Any, logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """What BackPACK computes: for each weight of the classifier one gradient a sample, flat."""
    losses = nn.functional.cross_entropy(logits, labels, reduction="none")
    names, weights = zip(*fishr.classifier.named_parameters(), strict=True)
    rows = [torch.autograd.grad(loss, weights, create_graph=True) for loss in losses]
    columns = zip(*rows, strict=True)
    return {name: torch.stack(list(c)).flatten(1) for name, c in zip(names, columns, strict=True)}


class _Stub(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def _mixup_numbers(module: types.ModuleType, ours: Algorithm, batch: DomainBatch, context: StepContext) -> Any:
    from genie_dg.algorithms.mixup import beta, ring

    generator = context.generator()
    pairs = ring(torch.randperm(len(batch), generator=generator).tolist())
    weights = iter(beta(ours.mixup_alpha, (len(pairs),), generator).tolist())
    minibatches = list(zip(batch.images, batch.labels, strict=True))
    return patch.multiple(
        module,
        random_pairs_of_minibatches=lambda _: [(minibatches[i], minibatches[j]) for i, j in pairs],
        np=types.SimpleNamespace(random=types.SimpleNamespace(beta=lambda a, b: next(weights))),
    )


def _mask_in_float64(module: types.ModuleType, *_: object) -> Any:
    """DomainBed computes the share of kept entries in float32, whatever the weights are."""
    names = {name: getattr(torch, name) for name in ("stack", "sign", "mean")}
    return patch.object(module, "torch", types.SimpleNamespace(**names, float32=torch.float64))


def _adversary(ours: Any, theirs: Any) -> list[tuple[nn.Module, nn.Module]]:
    pairs = [(ours.discriminator, theirs.discriminator)]
    return pairs if ours.class_embedding is None else [*pairs, (ours.class_embedding, theirs.class_embeddings)]


ANNEAL = {"irm_lambda": 3.0, "irm_penalty_anneal_iters": 7}
ADVERSARY = {"lambda_": 0.7, "grad_penalty": 0.5, "d_steps_per_g_step": 2, "lr_d": LR, "weight_decay_d": 0.01}

COMPARED: dict[str, Comparison] = {
    "ERM": Comparison("ERM"),
    "IRM": Comparison("IRM", ANNEAL),
    "GroupDRO": Comparison("GroupDRO", {"groupdro_eta": 0.1}),
    "Mixup": Comparison("Mixup", same_numbers=_mixup_numbers),
    "MMD": Comparison("MMD"),
    "CORAL": Comparison("CORAL"),
    "DANN": Comparison("DANN", ADVERSARY, first_step=1, betas=(0.5, 0.9), weights=_adversary),
    "CDANN": Comparison("CDANN", ADVERSARY, first_step=1, betas=(0.5, 0.9), weights=_adversary),
    "VREx": Comparison("VREx", {"vrex_lambda": 5.0, "vrex_penalty_anneal_iters": 7}),
    "RSC": Comparison("RSC"),
    "Fishr": Comparison("Fishr", {"lambda_": 10.0, "penalty_anneal_iters": 7}),
    "ANDMask": Comparison("ANDMask", {"tau": 0.5}, same_numbers=_mask_in_float64),
    "SANDMask": Comparison("SANDMask", {"tau": 0.5}),
    "IGA": Comparison("IGA", {"penalty": 30.0}, hparams={"penalty": 30.0 / DOMAINS}),
}
"""Every algorithm whose row names a tolerance; what a row says of differences is taken out by the settings."""


def batch_of(step: int) -> DomainBatch:
    generator = torch.Generator().manual_seed(step)
    images = [torch.randn(SAMPLES, 1, 28, 28, generator=generator, dtype=torch.float64) for _ in range(DOMAINS)]
    labels = [torch.randperm(SAMPLES, generator=generator) % CLASSES for _ in range(DOMAINS)]  # all classes
    return DomainBatch(tuple(images), tuple(labels))


@contextmanager
def float64() -> Iterator[None]:
    """New tensors are float64, DomainBed's among them."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def difference(name: str, module: types.ModuleType) -> float:
    """The largest relative difference of a tensor after `STEPS` steps."""
    compared = COMPARED[name]
    with float64(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        theirs = _theirs(compared, name, module)
        ours = _ours(compared, name, theirs)
        for own, other in compared.weights(ours, theirs):
            own.load_state_dict(_in_order(own, other))
        settings = {"lr": LR, "beta1": compared.betas[0], "beta2": compared.betas[1]}
        config = RunConfig("digits", (5,), name, "adam", optimizer_settings=settings)
        optimizers = build_optimizers(config, ours)
        for step in range(STEPS):
            batch, context = batch_of(step), StepContext(step + compared.first_step)
            minibatches = list(zip(batch.images, batch.labels, strict=True))
            numbers = compared.same_numbers
            with patch.dict({}) if numbers is None else numbers(module, ours, batch, context):
                theirs.update(minibatches)
            take_step(ours, optimizers, batch, context)
        return _distance(ours, theirs)


def _theirs(compared: Comparison, name: str, module: types.ModuleType) -> Any:
    registry = importlib.import_module("domainbed.hparams_registry")
    hparams = registry.default_hparams(compared.theirs, "RotatedMNIST")
    own = {published_name(key): value for key, value in compared.settings.items()}
    hparams |= {"lr": LR, "lr_g": LR, "weight_decay": 0.0, "weight_decay_g": 0.0, **own, **compared.hparams}
    return getattr(module, compared.theirs)((1, 28, 28), CLASSES, DOMAINS, hparams)


def _ours(compared: Comparison, name: str, theirs: Any) -> Algorithm:
    row = ALGORITHMS[name]
    network = Wrapped(copy.deepcopy(theirs.featurizer), copy.deepcopy(theirs.classifier))
    built: Algorithm = row.build(
        network, DOMAINS, **with_defaults(name, defaults(row.space), compared.settings)
    )
    return built.train()


def _in_order(own: nn.Module, other: nn.Module) -> dict[str, Tensor]:
    """The other's weights under the names of our own, which come in the same order."""
    values = other.state_dict().values()
    return dict(zip(own.state_dict(), values, strict=True))


def _distance(ours: Algorithm, theirs: Any) -> float:
    network: Any = ours.network
    own = [*network.featurizer.parameters(), *network.head.parameters()]
    other = [*theirs.featurizer.parameters(), *theirs.classifier.parameters()]
    pairs = zip(own, other, strict=True)
    return max(float((a - b).detach().abs().max() / b.detach().abs().max()) for a, b in pairs)


def main() -> None:
    module = load(Path(sys.argv[1]))
    for name in COMPARED:
        print(f"{name:16} {difference(name, module):.1e}", flush=True)


if __name__ == "__main__":
    main()
