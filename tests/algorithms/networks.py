"""A small network, small batches and plain optimizers for tests of algorithms; smooth, in float64 as a rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

from genie_dg._types import DomainBatch, Edit, Network, StepContext
from genie_dg.algorithms.algorithm import Algorithm
from genie_dg.optim.registry import build_optimizer


class Featurizer(nn.Module):
    """Two convolutions with tanh, then the mean over space: images ``[n, c, h, w]`` to ``[n, 6]``."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.early = nn.Conv2d(channels, 4, 3, padding=1)
        self.late = nn.Conv2d(4, 6, 3, padding=1)

    def forward(self, images: Tensor, edits: Mapping[str, Edit] | None = None) -> Tensor:
        edits = edits or {}
        x = torch.tanh(self.early(images))
        x = edits["early"](x) if "early" in edits else x
        x = torch.tanh(self.late(x))
        x = edits["late"](x) if "late" in edits else x
        return x.mean((2, 3))


class SmallNetwork(Network):
    """`Featurizer` and a linear head; feature points ``early`` (4 channels) and ``late`` (6 channels)."""

    def __init__(self, channels: int = 1, classes: int = 3) -> None:
        super().__init__()
        self.featurizer: Featurizer = Featurizer(channels)
        self.head = nn.Linear(6, classes)
        self.feature_size, self.classes, self.points = 6, classes, ("early", "late")
        self.point_channels = {"early": 4, "late": 6}

    def features(self, images: Tensor, edits: Mapping[str, Edit] | None = None) -> Tensor:
        features: Tensor = self.featurizer(images, edits)
        return features


def small_network(
    seed: int = 0, channels: int = 1, classes: int = 3, dtype: torch.dtype = torch.float64
) -> SmallNetwork:
    """The same weights for the same seed; the global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return SmallNetwork(channels, classes).to(dtype)


def batch(
    domains: int = 3,
    size: int = 6,
    seed: int = 1,
    channels: int = 1,
    classes: int = 3,
    dtype: torch.dtype = torch.float64,
) -> DomainBatch:
    """Random 5x5 images whose domains differ in mean and scale; every class occurs when size allows."""
    g = torch.Generator().manual_seed(seed)
    images = [
        torch.randn(size, channels, 5, 5, generator=g, dtype=torch.float64).to(dtype) * (1 + 0.3 * k) + 0.2 * k
        for k in range(domains)
    ]
    labels = [(torch.arange(size) + k) % classes for k in range(domains)]
    return DomainBatch(tuple(images), tuple(labels))


def cut(sizes: tuple[int, ...], seed: int = 1, channels: int = 1) -> DomainBatch:
    """A batch with domains of these sizes."""
    whole = batch(len(sizes), max(sizes), seed, channels)
    pairs = list(zip(whole.images, whole.labels, sizes, strict=True))
    return DomainBatch(tuple(x[:n] for x, _, n in pairs), tuple(y[:n] for _, y, n in pairs))


def labelled(*labels: list[int], seed: int = 1) -> DomainBatch:
    """A batch with these labels of four classes in its domains."""
    images = batch(len(labels), max(map(len, labels)), seed, classes=4).images
    return DomainBatch(
        tuple(x[: len(y)] for x, y in zip(images, labels, strict=True)), tuple(map(torch.tensor, labels))
    )


class Normed(SmallNetwork):
    """With batch norm on the features."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(6)

    def features(self, images: Tensor, edits: Mapping[str, Edit] | None = None) -> Tensor:
        result: Tensor = self.norm(super().features(images, edits))
        return result


class VectorPoints(SmallNetwork):
    """Calls its points with a vector."""

    def features(self, images: Tensor, edits: Mapping[str, Edit] | None = None) -> Tensor:
        x = super().features(images)
        return next(iter(edits.values()))(x) if edits else x


def steppers(algorithm: Algorithm, lr: float) -> dict[str, Optimizer]:
    """For each role plain SGD, or the optimizer that the algorithm fixes for it."""
    result: dict[str, Optimizer] = {}
    for name, role in algorithm.roles().items():
        groups = [{"params": list(group.parameters), "lr": lr * group.lr_factor} for group in role.groups]
        own = role.optimizer and build_optimizer(role.optimizer, role.groups, **dict(role.settings))
        result[name] = own or torch.optim.SGD(groups, lr=lr)
    return result


def written(algorithm: Algorithm, data: DomainBatch, context: StepContext) -> tuple[Tensor, list[Tensor]]:
    """The first loss of a step and its gradient in the parameters of the network."""
    loss = next(iter(algorithm.objectives(data, context))).loss()
    parameters = list(algorithm.network.parameters())
    return loss, list(torch.autograd.grad(loss, parameters, create_graph=context.create_graph))


def gradients_of_domains(network: nn.Module, data: DomainBatch) -> tuple[list[float], list[list[Tensor]]]:
    """Losses, and for each domain the gradients of all parameters."""
    losses, rows = [], []
    for images, labels in zip(data.images, data.labels, strict=True):
        loss = cross_entropy(network(images), labels)
        losses.append(loss.item())
        rows.append(list(torch.autograd.grad(loss, list(network.parameters()))))
    return losses, rows


def same(ours: object, theirs: object, rtol: float = 1e-10, atol: float = 1e-12) -> None:
    """Each parameter of a module, or each tensor of a list, is close to the other's."""
    a, b = (x.parameters() if isinstance(x, nn.Module) else x for x in (ours, theirs))
    detached = [[x.detach() for x in side] for side in (a, b)]
    torch.testing.assert_close(*detached, rtol=rtol, atol=atol)


def descend(loss: Tensor, parameters: Sequence[Tensor], lr: float) -> None:
    """One step of gradient descent."""
    for p, g in zip(parameters, torch.autograd.grad(loss, list(parameters)), strict=True):
        p.data -= lr * g


def mean_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean cross entropy, one sample after the other."""
    total = logits.new_zeros(())
    for z, y in zip(logits, labels, strict=True):
        total = total - torch.log(torch.exp(z[y]) / torch.exp(z).sum())
    return total / len(labels)


class Adam:
    """Adam written out, with weight decay added to the gradient as torch does."""

    def __init__(
        self, parameters: Sequence[Tensor], lr: float, beta1: float = 0.9, beta2: float = 0.999,
        decay: float = 0.0, eps: float = 1e-8,
    ) -> None:  # fmt: skip
        self.parameters, self.lr, self.betas, self.t = list(parameters), lr, (beta1, beta2), 0
        self.decay, self.eps = decay, eps
        self.m, self.v = ([torch.zeros_like(p) for p in parameters] for _ in range(2))

    def step(self, loss: Tensor) -> None:
        self.t += 1
        b1, b2 = self.betas
        for k, g in enumerate(torch.autograd.grad(loss, self.parameters)):
            g = g + self.decay * self.parameters[k].detach()
            self.m[k] = b1 * self.m[k] + (1 - b1) * g
            self.v[k] = b2 * self.v[k] + (1 - b2) * g * g
            size = self.m[k] / (1 - b1**self.t) / ((self.v[k] / (1 - b2**self.t)).sqrt() + self.eps)
            self.parameters[k].data -= self.lr * size
