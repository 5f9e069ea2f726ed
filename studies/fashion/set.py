"""The set and the network of the study: FashionMNIST turned and recoloured, and three small convolutions."""

from pathlib import Path

import torch
from torch import Tensor, nn

from genie_dg.data.published.mnist import FASHION, rotated_mnist
from genie_dg.models.backbones import BackboneRequest
from genie_dg.plugins import BACKBONES, SETS, BackboneRow, DomainSet, Featurizer, SetRow, TensorDomain

LOOKS = {
    "white on black": (0, (255, 255, 255), (0, 0, 0)),
    "orange on violet": (15, (255, 190, 120), (60, 20, 70)),
    "green on blue": (30, (150, 255, 170), (20, 40, 90)),
    "blue on brown": (45, (160, 200, 255), (80, 50, 20)),
}
"""By domain the angle and the colours of what was white and of what was black, the darker one in all."""
PICTURES = 2000
"""Of each domain; no picture is in two."""
CHANNELS = (8, 16, 32)
"""Of three 3 x 3 convolutions of stride 2, each with a ReLU and a group norm."""


def open_set(root: Path | None) -> DomainSet:
    """Four domains; which picture is in which depends on nothing."""
    if root is None:
        raise ValueError("FashionMNIST is read from its idx files; name the folder above theirs with --root.")
    turned = rotated_mnist(
        root / "FashionMNIST", angles=[angle for angle, *_ in LOOKS.values()], classes=FASHION
    )
    domains = [
        TensorDomain(name, recoloured(domain.images[:PICTURES], *colours), domain.labels[:PICTURES])
        for (name, (_, *colours)), domain in zip(LOOKS.items(), turned.domains, strict=True)
    ]
    return DomainSet("TurnedFashion", FASHION, tuple(domains))


def recoloured(grey: Tensor, bright: tuple[int, ...], dark: tuple[int, ...]) -> Tensor:
    """Grey pictures ``[n, 1, height, width]`` with a colour for white and one for black, between them linear.

    >>> recoloured(torch.tensor([[[[0, 255]]]], dtype=torch.uint8), (9, 8, 7), (1, 2, 3))[0, :, 0].tolist()
    [[1, 9], [2, 8], [3, 7]]
    """
    share = grey.float() / 255
    high, low = (torch.tensor(c, dtype=torch.float32).view(1, 3, 1, 1) for c in (bright, dark))
    return (share * high + (1 - share) * low).round().to(torch.uint8)


class Small(nn.Sequential):
    """Convolutions, then the mean over space."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        for i, outputs in enumerate(CHANNELS, start=1):
            convolution = nn.Conv2d(channels, outputs, 3, stride=2, padding=1)
            self.add_module(f"block{i}", nn.Sequential(convolution, nn.ReLU(), nn.GroupNorm(8, outputs)))
            channels = outputs

    def forward(self, images: Tensor) -> Tensor:
        maps: Tensor = super().forward(images)
        return maps.mean((2, 3))


def build(request: BackboneRequest) -> Featurizer:
    """The network, from random weights."""
    points = {f"block{i}": outputs for i, outputs in enumerate(CHANNELS, start=1)}
    return Featurizer(Small(request.channels), CHANNELS[-1], {name: name for name in points}, points)


SETS.register(SetRow("turned-fashion", "files", "FashionMNIST turned and recoloured", open_set, True,
                     tuple(LOOKS), "TurnedFashion"))  # fmt: skip
BACKBONES.register(BackboneRow("small-cnn", build, "three convolutions of stride 2, 32 features", "this study"))
