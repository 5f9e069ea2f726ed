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
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from genie_dg._types import DomainBatch, StepContext
from genie_dg.algorithms.algorithm import Algorithm
from genie_dg.algorithms.registry import ALGORITHMS
from genie_dg.bench.build import build_optimizers
from genie_dg.bench.step import take_step
from genie_dg.models._featurizer import Featurizer
from genie_dg.models.classifier import Classifier
from genie_dg.registry import with_defaults
from genie_dg.runs.config import RunConfig
from genie_dg.search_space import defaults, published_name

STEPS, DOMAINS, SAMPLES, CLASSES, LR = 20, 3, 8, 5, 1e-3
ABSENT = ("timm", "torchvision", "torchvision.models", "wilds")
"""Packages that DomainBed imports and small images do not need; an empty module stands in for a missing one."""


class Smooth(nn.Module):
    """A small featurizer for both sides.

    It has no ReLU: an entry whose gradient is exactly 0 on one side and a rounding error on the other moves by
    the whole learning rate under Adam.
    """

    n_outputs = 16

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 8, 3, stride=2), nn.Conv2d(8, 16, 3, stride=2)
        self.activation: nn.Module = nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        maps = torch.tanh(self.second(torch.tanh(self.first(images))))
        features: Tensor = self.activation(maps.mean((2, 3)))
        return features


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
        parts: what each side has beyond the network and its head, in pairs; they begin with the same weights.
    """

    theirs: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    hparams: Mapping[str, Any] = field(default_factory=dict)
    first_step: int = 0
    betas: tuple[float, float] = (0.9, 0.999)
    same_numbers: Callable[[types.ModuleType, Algorithm, DomainBatch, StepContext], Any] | None = None
    parts: Callable[[Any, Any], list[tuple[nn.Module, nn.Module]]] = lambda ours, theirs: []


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
    module.networks.Featurizer = lambda shape, hparams: Smooth()
    module.networks.MNIST_CNN = Smooth  # URM wants one of the featurizers that it knows
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


def _weights_in_float64(module: types.ModuleType, *_: object) -> Any:
    """DomainBed's CDANN casts the weights of the samples to float32."""
    return patch.object(Tensor, "float", Tensor.double)


def _cuts(module: types.ModuleType, ours: Algorithm, batch: DomainBatch, context: StepContext) -> Any:
    generator = context.generator()
    draw = types.SimpleNamespace(randint=lambda low, high: int(torch.randint(high, (), generator=generator)))
    return patch.object(module, "np", types.SimpleNamespace(random=draw))


def _selfreg_numbers(module: types.ModuleType, ours: Any, batch: DomainBatch, context: StepContext) -> Any:
    from genie_dg.algorithms._mixing import beta

    generator, shuffle, sort, stack = context.generator(), torch.randperm, torch.sort, ExitStack()
    draw = types.SimpleNamespace(beta=lambda *_: float(beta(0.5, (), generator)))
    stack.enter_context(patch.object(module, "np", types.SimpleNamespace(random=draw)))
    stack.enter_context(
        patch.object(torch, "randperm", lambda n: shuffle(n, generator=generator if n else None))
    )
    stack.enter_context(patch.object(torch, "sort", lambda values: sort(values, stable=True)))
    return stack


def _urm_numbers(module: types.ModuleType, ours: Algorithm, batch: DomainBatch, context: StepContext) -> Any:
    generator, uniform, n = context.generator(), torch.rand, DOMAINS * SAMPLES
    noise = uniform(n, Smooth.n_outputs, generator=generator)
    return patch.object(torch, "rand", lambda *size, **_: noise)


def _adrmx_numbers(module: types.ModuleType, ours: Any, batch: DomainBatch, context: StepContext) -> Any:
    """DomainBed takes positions within a class for positions in the batch; it is handed the latter."""
    from genie_dg.algorithms.adrmx import remix_pairs

    labels = batch.all_labels.tolist()
    pairs = remix_pairs(labels, batch.domain_labels.tolist(), context.generator())
    of_class = {labels[i]: (i, j) for i, j in pairs}
    classes = iter(range(CLASSES))
    return patch.object(torch, "randperm", lambda n: torch.tensor(of_class.get(next(classes), (0,))))


def _quantile_gradient(module: types.ModuleType, *_: object) -> Any:
    """The gradient of the quantile itself, and a bisection to the last digit, in DomainBed's EQRM."""
    misc = importlib.import_module("domainbed.lib.misc")
    bisect, icdf, stack = misc.continuous_bisect_fun_left, misc.Nonparametric.icdf, ExitStack()

    def implicit(self: Any, q: float) -> Tensor:
        with torch.no_grad():
            x = icdf(self, q)
        normal = torch.distributions.Normal(self.data, self.bw[0].expand(len(self.data)))
        density = normal.log_prob(x).exp().mean().detach()
        result: Tensor = x - (normal.cdf(x).mean() - q) / density
        return result

    stack.enter_context(patch.object(misc.Nonparametric, "icdf", implicit))
    precise = partial(bisect, n_steps=60)
    stack.enter_context(patch.object(misc, "continuous_bisect_fun_left", precise))
    return stack


def _on_the_cpu(module: types.ModuleType, *_: object) -> Any:
    """DomainBed's RDM moves its losses to a GPU."""
    return patch.object(Tensor, "cuda", lambda self: self)


def _discriminators(ours: Any, theirs: Any) -> list[tuple[nn.Module, nn.Module]]:
    return [(ours.discriminator, theirs.discriminator)]


def _adversary(ours: Any, theirs: Any) -> list[tuple[nn.Module, nn.Module]]:
    pairs = _discriminators(ours, theirs)
    return pairs if ours.class_embedding is None else [*pairs, (ours.class_embedding, theirs.class_embeddings)]


def _adrmx_parts(ours: Any, theirs: Any) -> list[tuple[nn.Module, nn.Module]]:
    theirs.update_count -= 1  # our discriminator begins
    second, heads = ours.domain_network, (theirs.classifier_label_1, theirs.classifier_label_2)
    return [
        (second.featurizer, theirs.featurizer_domain), (second.head, theirs.classifier_domain),
        (ours.head, heads[0]), (ours.final_head, heads[1]), (ours.discriminator, theirs.discriminator),
    ]  # fmt: skip


def _selfreg_parts(ours: Any, theirs: Any) -> list[tuple[nn.Module, nn.Module]]:
    theirs.optimizer.add_param_group({"params": list(theirs.cdpl.parameters())})  # DomainBed leaves it out
    return [(ours.perturbation, theirs.cdpl)]


def _averages_sooner(ours: Any, theirs: Any) -> list[tuple[nn.Module, nn.Module]]:
    theirs.sma_start_iter = 9
    return []


ANNEAL = {"irm_lambda": 3.0, "irm_penalty_anneal_iters": 7}
BOTTLENECK = {"ib_lambda": 3.0, "ib_penalty_anneal_iters": 12}
ADVERSARY = {"lambda_": 0.7, "grad_penalty": 0.5, "d_steps_per_g_step": 2, "lr_d": LR, "weight_decay_d": 0.01}
RDM = {"rdm_lambda": 5.0, "rdm_penalty_anneal_iters": 7, "variance_weight": 0.004, "rdm_lr": 5e-4}
TRANSFER = {"lr_d": 2.0, "delta": 0.3, "d_steps_per_g": 3, "t_lambda": 0.7}
EQRM = {"eqrm_burnin_iters": 7, "eqrm_lr": 5e-4}
AVERAGE = {"linear_lr": 3e-3, "linear_steps": 6, "sma_start_iter": 9}
GAN = (0.5, 0.9)

COMPARED: dict[str, Comparison] = {
    "ERM": Comparison("ERM"),
    "IRM": Comparison("IRM", ANNEAL),
    "GroupDRO": Comparison("GroupDRO", {"groupdro_eta": 0.1}),
    "Mixup": Comparison("Mixup", same_numbers=_mixup_numbers),
    "MMD": Comparison("MMD"),
    "CORAL": Comparison("CORAL"),
    "DANN": Comparison("DANN", ADVERSARY, first_step=1, betas=GAN, parts=_adversary),
    "CDANN": Comparison("CDANN", ADVERSARY, {}, 1, GAN, parts=_adversary, same_numbers=_weights_in_float64),
    "VREx": Comparison("VREx", {"vrex_lambda": 5.0, "vrex_penalty_anneal_iters": 7}),
    "RSC": Comparison("RSC", {"rsc_f_drop_factor": 0.3}),  # 1/3 of 16 features: rounding decides a tie
    "Fishr": Comparison("Fishr", {"lambda_": 10.0, "penalty_anneal_iters": 7}),
    "ANDMask": Comparison("ANDMask", {"tau": 0.5}, same_numbers=_mask_in_float64),
    "SANDMask": Comparison("SANDMask", {"tau": 0.5}),
    "IGA": Comparison("IGA", {"penalty": 30.0}, hparams={"penalty": 30.0 / DOMAINS}),
    "SD": Comparison("SD"),
    "SelfReg": Comparison("SelfReg", same_numbers=_selfreg_numbers, parts=_selfreg_parts),
    "IB-ERM": Comparison("IB_ERM", BOTTLENECK),
    "IB-IRM": Comparison("IB_IRM", {**ANNEAL, **BOTTLENECK}),
    "CAD": Comparison("CAD"),
    "CondCAD": Comparison("CondCAD"),
    "Transfer": Comparison("Transfer", TRANSFER, parts=lambda o, t: [(o.adversary, t.adv_classifier)]),
    "CausIRL-CORAL": Comparison("CausIRL_CORAL", same_numbers=_cuts),
    "CausIRL-MMD": Comparison("CausIRL_MMD", same_numbers=_cuts),
    "EQRM": Comparison("EQRM", EQRM, same_numbers=_quantile_gradient),
    "RDM": Comparison("RDM", RDM, same_numbers=_on_the_cpu),
    "ADRMX": Comparison("ADRMX", {"lr_": LR}, betas=GAN, same_numbers=_adrmx_numbers, parts=_adrmx_parts),
    "URM": Comparison("URM", {"urm_discriminator_lr": LR}, same_numbers=_urm_numbers, parts=_discriminators),
    "ERM++": Comparison("ERMPlusPlus", AVERAGE, hparams={"linear_steps": 5}, parts=_averages_sooner),
}
"""Every algorithm whose row names a tolerance; what a row says of differences is taken out by the settings."""


def batch_of(step: int) -> DomainBatch:
    generator = torch.Generator().manual_seed(step)
    images = [torch.randn(SAMPLES, 1, 12, 12, generator=generator, dtype=torch.float64) for _ in range(DOMAINS)]
    labels = [torch.randperm(SAMPLES, generator=generator) % CLASSES for _ in range(DOMAINS)]  # all classes
    return DomainBatch(tuple(images), tuple(labels))


def difference(name: str, module: types.ModuleType) -> float:
    """The largest relative difference of a tensor after `STEPS` steps; new tensors of both are float64."""
    compared = COMPARED[name]
    with ExitStack() as stack, torch.random.fork_rng(devices=[]):
        stack.callback(torch.set_default_dtype, torch.get_default_dtype())
        torch.set_default_dtype(torch.float64)
        torch.manual_seed(0)
        theirs = _theirs(compared, module)
        ours = _ours(compared, name, theirs)
        parts = compared.parts(ours, theirs)
        for own, other in parts:
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
        return _distance(ours, theirs, parts)


def _theirs(compared: Comparison, module: types.ModuleType) -> Any:
    registry = importlib.import_module("domainbed.hparams_registry")
    hparams = registry.default_hparams(compared.theirs, "RotatedMNIST")
    own = {published_name(key): value for key, value in compared.settings.items()}
    hparams |= {"lr": LR, "lr_g": LR, "weight_decay": 0.0, "weight_decay_g": 0.0, **own, **compared.hparams}
    return getattr(module, compared.theirs)((1, 12, 12), CLASSES, DOMAINS, hparams)


def _ours(compared: Comparison, name: str, theirs: Any) -> Algorithm:
    row = ALGORITHMS[name]
    featurizer, head = _network(theirs)
    smooth = copy.deepcopy(featurizer)
    smooth.activation = nn.Identity()
    network = Classifier(Featurizer(smooth, Smooth.n_outputs, {}, {}, pretrained=False), CLASSES)
    network.head = copy.deepcopy(head)
    settings = with_defaults(name, defaults(row.space), compared.settings)
    built: Algorithm = row.build(network, DOMAINS, **settings).train()
    return built


def _network(theirs: Any) -> tuple[nn.Module, nn.Module]:
    """DomainBed's featurizer and classifier; ADRMX has two of each."""
    label = getattr(theirs, "featurizer_label", None)
    return (theirs.featurizer, theirs.classifier) if label is None else (label, theirs.classifier_label_1)


def _in_order(own: nn.Module, other: nn.Module) -> dict[str, Tensor]:
    """The other's weights under the names of our own, which come in the same order."""
    values = other.state_dict().values()
    return dict(zip(own.state_dict(), values, strict=True))


def _distance(ours: Any, theirs: Any, parts: list[tuple[nn.Module, nn.Module]]) -> float:
    featurizer, head = _network(theirs)
    pairs = [(ours.network.featurizer, featurizer), *parts]
    pairs += [] if hasattr(theirs, "featurizer_label") else [(ours.network.head, head)]
    worst = 0.0
    for own, other in pairs:
        for a, b in zip(own.parameters(), other.parameters(), strict=True):
            worst = max(worst, float((a - b).detach().abs().max() / b.detach().abs().max()))
    return worst


if __name__ == "__main__":
    for name in sys.argv[2:] or COMPARED:
        print(f"{name:16} {difference(name, load(Path(sys.argv[1]))):.1e}", flush=True)
