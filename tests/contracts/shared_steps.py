"""Some steps of an algorithm, alone or as one of several processes, in float64.

``python -m tests.contracts.shared_steps FOLDER RANK SIZE NAME...`` is one of the processes; they find one
another through a file in the folder, where each leaves what it saw.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from genie_dg._types import DomainBatch, Network, StepContext
from genie_dg.algorithms.algorithm import Algorithm
from genie_dg.algorithms.registry import ALGORITHMS
from genie_dg.bench.build import build_optimizers, create_graph, whole_gradients
from genie_dg.bench.parallel import World
from genie_dg.bench.sharing import shared
from genie_dg.bench.step import StepSettings, take_step
from genie_dg.models._featurizer import Featurizer
from genie_dg.models.classifier import Classifier
from genie_dg.registry import with_defaults
from genie_dg.runs.config import RunConfig
from genie_dg.search_space import defaults

STEPS, DOMAINS, SAMPLES, CLASSES = 4, 3, 7, 3
SAMPLES_SEEN = "samples that went through featurizers"
AT_ONCE: dict[str, Any] = {
    **dict.fromkeys(("irm_penalty_anneal_iters", "vrex_penalty_anneal_iters", "ib_penalty_anneal_iters"), 2),
    **dict.fromkeys(("penalty_anneal_iters", "rdm_penalty_anneal_iters", "eqrm_burnin_iters", "iters"), 2),
    **dict.fromkeys(("irm_lambda", "lambda_", "penalty"), 1.0),
    **dict.fromkeys(("linear_steps", "d_steps_per_g_step", "mixstyle_p"), 1),
    **dict.fromkeys(("grad_penalty", "mldg_inner_lr"), 0.1),
    **dict.fromkeys(("eqrm_lr", "rdm_lr"), 0.01),
    **dict.fromkeys(("sma_start_iter", "mlp_depth"), 3),
    "mlp_dropout": 0.5,
    "is_project": True,
    "tau": 0.3,
    "urm_discriminator_label_smoothing": 0.2,
}
"""Settings, by their names, with which everything that an algorithm does happens within the steps."""


class Smooth(nn.Module):
    """Two convolutions with tanh and a batch norm, whose statistics move; then the mean over space.

    No weight has a gradient that is 0 but for rounding, whose sign an algorithm could ask for.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.early, self.norm = nn.Conv2d(channels, 4, 3, bias=False), nn.BatchNorm2d(4)
        self.first, self.late, self.second = nn.Tanh(), nn.Conv2d(4, 6, 3), nn.Tanh()

    def forward(self, images: Tensor) -> Tensor:
        maps: Tensor = self.second(self.late(self.first(self.norm(self.early(images)))))
        return maps.mean((2, 3))


def build(name: str, domains: int, more: dict[str, Any]) -> Algorithm:
    """The algorithm on a small network with dropout; its weights are always the same."""
    row = ALGORITHMS[name]
    points, channels = {"first": "first", "second": "second"}, {"first": 4, "second": 6}
    settings = {key: value for key, value in {**AT_ONCE, **more}.items() if key in row.space}
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        featurizer = Featurizer(Smooth(1 + row.extra_channels), 6, points, channels, pretrained=False)
        network = Classifier(featurizer, CLASSES, dropout=0.2).double()
        built = row.build(network, domains, **with_defaults(name, defaults(row.space), settings))
    return built.train()


def batch_at(step: int, domains: int) -> DomainBatch:
    """Random images whose domains differ; every domain has all classes."""
    g = torch.Generator().manual_seed(step)
    images = [
        torch.randn(SAMPLES, 1, 6, 6, generator=g, dtype=torch.float64) * (1 + 0.3 * k) + 0.2 * k
        for k in range(domains)
    ]
    labels = [torch.randperm(SAMPLES, generator=g) % CLASSES for _ in range(domains)]
    return DomainBatch(tuple(images), tuple(labels))


def _count(total: Tensor, featurizer: nn.Module, inputs: tuple[Tensor]) -> None:
    total += len(inputs[0])


def trajectory(case: str, world: World) -> dict[str, Tensor]:
    """The losses and the gradients of all steps, the state after them, and how many samples were computed.

    Args:
        case: an algorithm, then words that follow a slash: an optimizer (``sgd`` where none is named) and
            settings as ``name=value``.
        world: the processes.
    """
    name, *words = case.split("/")
    more = dict(word.split("=") for word in words if "=" in word)
    optimizer = next((word for word in words if "=" not in word), "sgd")
    domains = int(more.pop("domains", DOMAINS))
    algorithm = build(name, domains, more)
    config = RunConfig("mine", (9,), name, optimizer, optimizer_settings={"lr": 0.05})
    optimizers = build_optimizers(config, algorithm)
    seen: dict[str, Tensor] = {SAMPLES_SEEN: torch.zeros(())}
    for network in algorithm.modules():
        if isinstance(network, Network):
            network.featurizer.register_forward_pre_hook(partial(_count, seen[SAMPLES_SEEN]))
    for step in range(STEPS):
        torch.manual_seed(100 + step)
        context = StepContext(step, 7, create_graph(config))
        with shared(algorithm, world, whole_gradients(config)):
            settings = StepSettings(world=world)
            losses = take_step(algorithm, optimizers, batch_at(step, domains), context, settings)
        seen |= {f"loss {step} {role}": loss for role, loss in losses.items()}
        named = algorithm.named_parameters()
        seen |= {f"gradient {step} {name}": p.grad.clone() for name, p in named if p.grad is not None}
    return seen | {f"state {name}": value for name, value in algorithm.state_dict().items()}


def main(folder: Path, rank: int, size: int, cases: list[str]) -> None:
    """One of the processes."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder / 'meeting'}", rank=rank, world_size=size)
    torch.save({case: trajectory(case, World(rank, size)) for case in cases}, folder / f"{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
