"""DomainBed's two small featurizers: the convolutional network for MNIST and the multilayer perceptron."""

from __future__ import annotations

from torch import Tensor, nn

from ._featurizer import BackboneRequest, BackboneRow, Featurizer
from ._weights import load_weights

_CONVOLUTIONS = ((64, 1), (128, 2), (128, 1), (128, 1))
"""Channels and stride of each 3 x 3 convolution."""

_WIDTH, _HIDDEN = 256, 2
"""Units of every layer of the perceptron, and how many of its layers are followed by a ReLU."""


class Cnn(nn.Sequential):
    """Four times convolution, ReLU, group norm with 8 groups; then the mean over space: 128 features."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        inputs = channels
        for i, (outputs, stride) in enumerate(_CONVOLUTIONS, start=1):
            convolution = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1)
            self.add_module(f"block{i}", nn.Sequential(convolution, nn.ReLU(), nn.GroupNorm(8, outputs)))
            inputs = outputs

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images).mean((2, 3))  # type: ignore[no-untyped-call, no-any-return]


class Mlp(nn.Sequential):
    """Three linear layers on the flattened image, a ReLU after the first two: 256 features."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        for i in range(1, _HIDDEN + 1):
            self.add_module(f"hidden{i}", nn.Sequential(nn.Linear(inputs, _WIDTH), nn.ReLU()))
            inputs = _WIDTH
        self.output = nn.Linear(inputs, _WIDTH)

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images.flatten(1))  # type: ignore[no-untyped-call, no-any-return]


def build_cnn(request: BackboneRequest) -> Featurizer:
    """DomainBed's ``MNIST_CNN``, for images of any size and number of channels."""
    channels = {f"block{i}": outputs for i, (outputs, _) in enumerate(_CONVOLUTIONS, start=1)}
    return _featurizer("cnn", Cnn(request.channels), _CONVOLUTIONS[-1][0], channels, request)


def build_mlp(request: BackboneRequest) -> Featurizer:
    """DomainBed's ``MLP`` with its default width 256 and depth 3, without dropout; images have one fixed size.

    Differs from the public code in that images are flattened here; there the data are flat already.
    """
    channels = {f"hidden{i}": _WIDTH for i in range(1, _HIDDEN + 1)}
    inputs = request.channels * request.image_size**2
    return _featurizer("mlp", Mlp(inputs), _WIDTH, channels, request)


def _featurizer(
    name: str, module: nn.Module, size: int, channels: dict[str, int], request: BackboneRequest
) -> Featurizer:
    points = {point: point for point in channels}
    return Featurizer(module, size, points, channels, pretrained=load_weights(module, request, name))


_PAPER = "Gulrajani, Lopez-Paz: In Search of Lost Domain Generalization, ICLR 2021"
ROWS = (
    BackboneRow("cnn", build_cnn, "DomainBed's network for MNIST: 4 convolutions, 128 features", _PAPER),
    BackboneRow("mlp", build_mlp, "DomainBed's perceptron: 3 linear layers, 256 features", _PAPER, flat=True),
)
