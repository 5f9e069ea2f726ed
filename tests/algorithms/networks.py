"""A small network and small batches for tests of algorithms; everything smooth, in float64 when asked for."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from genie_dg._types import DomainBatch, Edit, Network


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
