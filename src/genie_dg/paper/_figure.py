"""What the figures and the ledger share: the set of a scale, the optimizers, a watched training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from genie_dg._types import StepContext
from genie_dg.bench.assemble import Parts, Places, assemble
from genie_dg.bench.seeds import seed_of
from genie_dg.bench.step import take_step
from genie_dg.bench.train import batch_of
from genie_dg.data.domains import DomainSet, FileDomain, TensorDomain
from genie_dg.data.loaders import Evaluation
from genie_dg.data.registry import open_data
from genie_dg.runs.record import RunConfig

from ._base import PaperError, Request


@dataclass(frozen=True)
class Contender:
    """An optimizer as a figure names it, with its settings."""

    label: str
    optimizer: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def on(self, config: RunConfig) -> RunConfig:
        """A run with this optimizer."""
        return replace(config, optimizer=self.optimizer, optimizer_settings=dict(self.settings))


SMALL = (
    Contender("SGD", "sgd", {"lr": 0.1, "momentum": 0.0}),
    Contender("Adam", "adam", {"lr": 0.001}),
    Contender("SAM", "sam", {"base": "sgd", "lr": 0.1, "rho": 0.05}),
    Contender("GENIE", "genie", {"lr": 0.3}),
)
"""For small networks from random weights: of five or six on digits, the best that never diverged."""

FINE_TUNED = (
    Contender("SGD", "sgd", {"lr": 0.001, "momentum": 0.9}),
    Contender("Adam", "adam", {"lr": 5e-5}),
    Contender("SAM", "sam", {"base": "sgd", "lr": 0.001, "rho": 0.05}),
    Contender("GENIE", "genie", {"lr": 0.015}),
)
"""For the small pretrained network: the defaults of the optimizers, Adam's and GENIE's as published."""

PUBLISHED = (
    Contender("SGD", "sgd", {"lr": 5e-5, "momentum": 0.0}),
    Contender("Adam", "adam"),
    Contender("SAM", "sam", {"base": "sgd", "lr": 5e-5}),
    Contender("GENIE", "genie"),
)
"""As the authors ran them: SGD and SAM with Adam's learning rate."""


@dataclass(frozen=True)
class Stage:
    """Where a figure is made: the set, a run without its optimizer, and who takes part."""

    data: DomainSet
    config: RunConfig
    contenders: tuple[Contender, ...]
    tick: Callable[[float, float, str], None] = lambda done, total, what: None

    def progress(self, contender: Contender, step: int, parts: Parts | None = None) -> None:
        """Tell that this many steps with an optimizer are done."""
        before = self.contenders.index(contender) * self.config.steps
        self.tick(before + step, len(self.contenders) * self.config.steps, contender.label)

    @property
    def note(self) -> str:
        """One line for captions and texts."""
        left_out = ", ".join(self.data.domains[k].name for k in self.config.test_domains)
        c = self.config
        return (
            f"{self.data.name}, {left_out} left out, {c.backbone}, {c.steps} steps of {c.batch_size} a domain"
        )


def open_set(request: Request, embedded: str) -> DomainSet:
    """The set that was asked for, or the embedded one."""
    return open_data(request.data or embedded, request.root)


def stage_of(
    request: Request, cpu: str, cpu_steps: int, paper: str, test_domain: int = -1, pretrained: bool = False
) -> Stage:
    """The set, the network and the length of a scale.

    ``smoke`` is 20 steps on digits with the perceptron; ``cpu`` is ``cpu_steps`` on the embedded set ``cpu``,
    from random weights or, for pictures of a size that allows it, a small pretrained network of 64 pixels;
    ``paper`` is the published set ``paper`` with a pretrained ResNet-50 and the length of its protocol.

    Args:
        request: what was asked for.
        cpu: an embedded set.
        cpu_steps: how long.
        paper: a published set.
        test_domain: the domain that is left out, -1 for the last.
        pretrained: whether scale ``cpu`` starts from published weights.
    """
    if request.scale == "paper" and not request.data and request.root is None:
        raise PaperError(
            f"The paper's scale needs {paper}, and no folder came; name the one that holds it with --root, or "
            "choose the scale cpu."
        )
    data = open_set(request, {"smoke": "digits", "cpu": cpu, "paper": paper}[request.scale])
    test = (range(len(data.domains))[test_domain],)
    if request.scale == "paper":
        config = RunConfig(
            data.name, test, backbone="resnet50", pretrained=True, batch_size=32, steps=5001,
            checkpoint_every=200, protocol="genie-paper",
        )  # fmt: skip
        return Stage(data, config, PUBLISHED, request.tick)
    sample = data.domains[0].read(0)
    tiny = isinstance(sample, Tensor) and sample.shape[-1] < 16
    if pretrained and request.scale == "cpu" and not tiny:
        config = RunConfig(
            data.name, test, backbone="efficientnet_lite0", pretrained=True, freeze_statistics=True,
            batch_size=8, image_size=64, steps=cpu_steps, protocol="paper-cpu",
        )  # fmt: skip
        return Stage(data, config, FINE_TUNED, request.tick)
    config = RunConfig(
        data.name,
        test,
        backbone="mlp" if tiny else "cnn",
        batch_size=4,
        image_size=32,
        steps=20 if request.scale == "smoke" else cpu_steps,
        protocol=f"paper-{request.scale}",
    )
    return Stage(data, config, SMALL, request.tick)


def chosen(contenders: Sequence[Contender], labels: Sequence[str]) -> tuple[Contender, ...]:
    """Those with these labels, in their order."""
    return tuple(c for c in contenders if c.label in labels)


def halves(data: DomainSet) -> tuple[DomainSet, DomainSet]:
    """Every second sample of each domain, and the others: one set to train on, one to measure on."""
    found = []
    for first in (0, 1):
        domains: list[TensorDomain | FileDomain] = []
        for d in data.domains:
            if isinstance(d, TensorDomain):
                domains.append(TensorDomain(d.name, d.images[first::2], d.labels[first::2]))
            elif isinstance(d, FileDomain):
                domains.append(FileDomain(d.name, d.root, list(d.paths)[first::2], d.labels[first::2]))
            else:
                raise PaperError(
                    f"The domain {d.name} is a {type(d).__name__}, which cannot be halved; give pictures in "
                    "files or tensors in memory."
                )
        found.append(replace(data, domains=tuple(domains)))
    return found[0], found[1]


def samples(data: DomainSet, domains: Sequence[int], size: int, most: int = 10**9) -> tuple[Tensor, Tensor]:
    """Images and labels of some domains in one batch; of each at most ``most`` samples, spread evenly."""
    pairs = []
    for k in domains:
        count = len(data.domains[k])
        rows = np.unique(np.linspace(0, count - 1, min(most, count)).astype(np.int64))
        pairs += list(Evaluation(data.domains[k], rows, size=size))
    return torch.cat([x for x, _ in pairs]), torch.cat([y for _, y in pairs])


def device_of(scale: str) -> str:
    """The graphics card for the paper's scale where there is one; small networks are faster without."""
    return "cuda" if scale == "paper" and torch.cuda.is_available() else "cpu"


def walk(
    config: RunConfig,
    data: DomainSet,
    each: Callable[[int, Parts], None] = lambda step, parts: None,
    device: str = "cpu",
) -> Parts:
    """Train as ``genie-dg train`` does, in memory; ``each(steps done, parts)`` looks on, from step 0.

    Torch's global random stream is put back afterwards.
    """
    parts = assemble(config, data, Places(device=device))
    seed = seed_of("steps", config)
    parts.algorithm.train()
    with torch.random.fork_rng(devices=[]):
        each(0, parts)
        for step in range(config.steps):
            torch.default_generator.manual_seed((seed + step) % 2**63)
            batch = batch_of(parts.training.at(step), parts.device)
            context = StepContext(step, seed, parts.create_graph)
            take_step(parts.algorithm, parts.optimizers, batch, context)
            each(step + 1, parts)
    return parts


def cross_entropy(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The mean over a batch, as the instruments want it."""
    return F.cross_entropy(model(x), y)
