"""What the figures and the ledger share: the set and network of a scale, optimizers, samples, empty figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn import functional as F

from genie_dg.bench.assemble import Parts
from genie_dg.data.domains import DomainSet, FileDomain, TensorDomain
from genie_dg.data.loaders import Evaluation
from genie_dg.data.registry import open_data
from genie_dg.results.render import csv_text
from genie_dg.runs.config import RunConfig

from .experiments import DIGITS_RATES
from .request import NeedsData, Request
from .runs import train_in_memory

Table: TypeAlias = tuple[Sequence[str], Sequence[Sequence[object]]]
"""Names of columns and rows."""

Settings = Mapping[str, Any]


@dataclass(frozen=True)
class OptimizerSetup:
    """An optimizer with its settings, under the label that figures show."""

    label: str
    optimizer: str
    settings: Settings = field(default_factory=dict)

    def on(self, config: RunConfig) -> RunConfig:
        """A run with this optimizer."""
        return replace(config, optimizer=self.optimizer, optimizer_settings=dict(self.settings))

    def having(self, **settings: Any) -> OptimizerSetup:
        """The same with some settings changed."""
        return replace(self, settings={**self.settings, **settings})


def _four(sgd: Settings, adam: Settings, sam: Settings, genie: Settings) -> tuple[OptimizerSetup, ...]:
    labels = {"SGD": sgd, "Adam": adam, "SAM": {"base": "sgd", **sam}, "GENIE": genie}
    return tuple(OptimizerSetup(label, label.lower(), settings) for label, settings in labels.items())


SMALL = _four(*(DIGITS_RATES[name] for name in ("sgd", "adam", "sam", "genie")))
"""For small networks from random weights."""

FINE_TUNED = _four({"lr": 0.001, "momentum": 0.9}, {"lr": 5e-5}, {"lr": 0.001, "rho": 0.05}, {"lr": 0.015})
"""For the small pretrained network: the defaults of the optimizers, Adam's and GENIE's as published."""

AS_PUBLISHED = _four({"lr": 5e-5, "momentum": 0.0}, {}, {"lr": 5e-5}, {})
"""As the authors ran them: SGD and SAM with Adam's learning rate."""


@dataclass(frozen=True)
class FigureSetup:
    """What a figure trains: the set, a run without its optimizer, the optimizers, and the device."""

    data: DomainSet
    config: RunConfig
    optimizers: tuple[OptimizerSetup, ...]
    device: str = "cpu"

    def train(self, setup: OptimizerSetup) -> Iterator[tuple[int, Parts]]:
        """Train with an optimizer, in memory; yields the number of steps done, from 0, and the run's parts."""
        yield from train_in_memory(setup.on(self.config), self.data, self.device)

    @property
    def note(self) -> str:
        """One line for captions and texts."""
        left_out = ", ".join(self.data.domains[k].name for k in self.config.test_domains)
        c = self.config
        return (
            f"{self.data.name}, {left_out} left out, {c.backbone}, {c.steps} steps of {c.batch_size} a domain"
        )


def figure_setup(
    request: Request, cpu: str, cpu_steps: int, paper: str, *, pretrained: bool = False,
    pretrained_steps: int | None = None,
) -> FigureSetup:  # fmt: skip
    """The set, the network and the length of a scale.

    ``smoke`` is 20 steps on digits with the perceptron; ``cpu`` is ``cpu_steps`` on the embedded set ``cpu``,
    from random weights or, for pictures of a size that allows it, a small pretrained network of 64 pixels;
    ``paper`` is the published set ``paper`` with a pretrained ResNet-50 and the length of its protocol, on the
    graphics card where there is one; small networks are faster without.

    Args:
        request: what was asked for.
        cpu: an embedded set.
        cpu_steps: how long.
        paper: a published set.
        pretrained: whether scale ``cpu`` starts from published weights, on pictures that are not tiny.
        pretrained_steps: how long then, if not ``cpu_steps``.
    """
    if request.scale == "paper" and not request.data and request.root is None:
        raise NeedsData(f"The paper's scale needs {paper}; name its folder with --root, or take the scale cpu.")
    embedded = {"smoke": "digits", "cpu": cpu, "paper": paper}[request.scale]
    data = open_data(request.data or embedded, request.root)
    test = (len(data.domains) - 1,)
    if request.scale == "paper":
        config = RunConfig(
            data.name, test, backbone="resnet50", pretrained=True, batch_size=32, steps=5001,
            checkpoint_every=200, protocol="genie-paper",
        )  # fmt: skip
        device = "cuda" if torch.cuda.is_available() else "cpu"
        return FigureSetup(data, config, AS_PUBLISHED, device)
    sample = data.domains[0].read(0)
    tiny = isinstance(sample, Tensor) and sample.shape[-1] < 16
    if pretrained and request.scale == "cpu" and not tiny:
        config = RunConfig(
            data.name, test, backbone="efficientnet_lite0", pretrained=True, freeze_statistics=True,
            batch_size=8, image_size=64, steps=pretrained_steps or cpu_steps, protocol="paper-cpu",
        )  # fmt: skip
        return FigureSetup(data, config, FINE_TUNED)
    config = RunConfig(
        data.name, test, backbone="mlp" if tiny else "cnn", batch_size=4, image_size=32,
        steps=20 if request.scale == "smoke" else cpu_steps, protocol=f"paper-{request.scale}",
    )  # fmt: skip
    return FigureSetup(data, config, SMALL)


def halves(data: DomainSet) -> tuple[DomainSet, DomainSet]:
    """Every second sample of each domain, and the others: one set to train on, one to measure on."""
    first, second = (replace(data, domains=tuple(_every_second(d, k) for d in data.domains)) for k in (0, 1))
    return first, second


def _every_second(domain: Any, first: int) -> TensorDomain | FileDomain:
    labels = domain.labels[first::2]
    if isinstance(domain, TensorDomain):
        return TensorDomain(domain.name, domain.images[first::2], labels)
    return FileDomain(domain.name, domain.root, list(domain.paths)[first::2], labels)


def samples(data: DomainSet, domains: Sequence[int], size: int, most: int = 10**9) -> tuple[Tensor, Tensor]:
    """Images and labels of some domains in one batch; of each at most ``most`` samples, spread evenly."""
    pairs = []
    for k in domains:
        count = len(data.domains[k])
        rows = np.unique(np.linspace(0, count - 1, min(most, count)).astype(np.int64))
        pairs += list(Evaluation(data.domains[k], rows, size=size))
    return torch.cat([x for x, _ in pairs]), torch.cat([y for _, y in pairs])


def cross_entropy(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The mean over a batch, as the instruments want it."""
    return F.cross_entropy(model(x), y)


def panels(rows: int, columns: int, width: float, height: float, **options: Any) -> tuple[Figure, list[Any]]:
    """A figure outside pyplot, so that nothing stays open, and its axes row by row."""
    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False, **options).flat)


def save(figure: Figure, folder: Path, name: str, table: Table | None = None) -> tuple[Path, ...]:
    """The picture as PNG and PDF, always with the same bytes, and its numbers as CSV beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    png, pdf, csv = (folder / f"{name}.{form}" for form in ("png", "pdf", "csv"))
    figure.savefig(png)
    figure.savefig(pdf, metadata={"CreationDate": None})
    if table is None:
        return png, pdf
    csv.write_text(csv_text(*table), encoding="utf-8")
    return png, pdf, csv
