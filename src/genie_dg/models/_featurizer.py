"""What a backbone is, what it is asked for and what it returns; the parts that several backbones share."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor, nn

from genie_dg.check import MissingPackage
from genie_dg.facts import IMAGENET_MEAN, IMAGENET_STD


@dataclass(frozen=True)
class BackboneRequest:
    """What a backbone is to be built for.

    Args:
        channels: of the images.
        image_size: height and width of the images, in pixels.
        pretrained: take the published weights.
        weights: take the weights of this file instead: a state dict written by ``torch.save`` or safetensors.
    """

    channels: int
    image_size: int
    pretrained: bool = False
    weights: Path | None = None


@dataclass(frozen=True)
class Featurizer:
    """What a backbone builds.

    Args:
        module: images ``[n, channels, height, width]`` to vectors ``[n, size]``.
        size: of a vector.
        points: names of the feature points in the order of the forward pass, each with the dotted name of the
            submodule whose output is that activation. Channels are its dimension 1.
        point_channels: channels of the activation at each point.
        pretrained: the weights come from a file and not from a random draw.
    """

    module: nn.Module
    size: int
    points: Mapping[str, str]
    point_channels: Mapping[str, int]
    pretrained: bool = False


@dataclass(frozen=True)
class BackboneRow:
    """One backbone of the registry.

    Args:
        name: as results call it.
        build: makes the featurizer for a `BackboneRequest`.
        summary: what it is, in a few words.
        paper: authors, title, venue.
        image_size: what it was designed for, in pixels; 0 when any size is as good.
        extra: of this package, with what it needs; empty when torch is enough.
        pretrained: where its published weights come from; empty when there are none.
        flat: it also takes samples that are not images, such as rows of a table.
    """

    name: str
    build: Callable[[BackboneRequest], Featurizer]
    summary: str
    paper: str = ""
    image_size: int = 0
    extra: str = ""
    pretrained: str = ""
    flat: bool = False


def expected_normalisation(channels: int) -> tuple[Sequence[float], Sequence[float]] | None:
    """The mean and deviation with which every backbone here expects its pictures normalised.

    None: pixels from 0 to 1 as they are, for all numbers of channels but 3.
    """
    return (IMAGENET_MEAN, IMAGENET_STD) if channels == len(IMAGENET_MEAN) else None


class Renormalised(nn.Module):
    """A network that was trained with another mean m and deviation s than ImageNet's.

    The images are normalised as `expected_normalisation` says, x = (pixel - mean) / std, and the network sees
    (pixel - m) / s = x * std / s + (mean - m) / s. Channel c takes the numbers of colour c % 3. The step is
    kept apart from the first convolution because the zeros that pad its border stand for a pixel of value m.

    Args:
        network: what follows.
        mean: m, between 0 and 1, one number for each colour, or one for all.
        std: s, in the same unit.
        channels: of the images.

    >>> black = (0 - torch.tensor(IMAGENET_MEAN)) / torch.tensor(IMAGENET_STD)
    >>> step = Renormalised(nn.Identity(), (0.5,) * 3, (0.5,) * 3, channels=3)
    >>> [round(value, 5) for value in step(black.view(1, 3, 1, 1)).flatten().tolist()]
    [-1.0, -1.0, -1.0]
    """

    scale: Tensor
    shift: Tensor

    def __init__(self, network: nn.Module, mean: Sequence[float], std: Sequence[float], channels: int) -> None:
        super().__init__()
        self.network = network
        given_mean, given_std = expected_normalisation(channels) or ((0.0,), (1.0,))
        colours = [c % 3 for c in range(channels)]
        scale = [given_std[c % len(given_std)] / std[c % len(std)] for c in colours]
        shift = [(given_mean[c % len(given_mean)] - mean[c % len(mean)]) / std[c % len(std)] for c in colours]
        for name, values in (("scale", scale), ("shift", shift)):
            self.register_buffer(name, torch.tensor(values).view(-1, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        return self.network(images * self.scale + self.shift)  # type: ignore[no-any-return]


def need(backbone: str, module: str, extra: str) -> ModuleType:
    """Import an optional package, or say in one sentence which extra brings it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise MissingPackage(
            f"The backbone {backbone} needs {module.partition('.')[0]}, which is not installed; "
            f'run pip install "genie-dg[{extra}]" and try again.'
        ) from error
