"""Worn digits: scikit-learn's handwritten digits, each domain worn in another way.

The domains are the digits as they are, under pixel noise, blurred, faded, and with a bar of ink across them, as
scanners and paper do it (after Hendrycks and Dietterich, "Benchmarking Neural Network Robustness to Common
Corruptions and Perturbations", 2019). Each image belongs to exactly one domain.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from .coloured_digits import deal
from .digits import load_digits
from .domains import DomainSet, TensorDomain

Wear = Callable[[Tensor, torch.Generator], Tensor]


def _noise(images: Tensor, stream: torch.Generator) -> Tensor:
    return images + 0.25 * torch.randn(images.shape, generator=stream)


def _blur(images: Tensor, stream: torch.Generator) -> Tensor:
    return F.avg_pool2d(F.pad(images, (1, 1, 1, 1), mode="replicate"), 3, stride=1)


def _fade(images: Tensor, stream: torch.Generator) -> Tensor:
    return 0.35 * images + 0.3


def _bar(images: Tensor, stream: torch.Generator) -> Tensor:
    rows = torch.randint(images.shape[-2], (len(images),), generator=stream)
    worn = images.clone()
    worn[torch.arange(len(images)), :, rows] = 1.0
    return worn


WEAR: dict[str, Wear] = {
    "clean": lambda images, stream: images,
    "noise": _noise,
    "blur": _blur,
    "faded": _fade,
    "bar": _bar,
}
"""The domains in order, and what is done to their images, which are 0 (paper) to 1 (ink)."""


def worn_digits(seed: int = 0) -> DomainSet:
    """The set: about 360 images of 8x8 pixels and ten classes in each domain.

    >>> [domain.name for domain in worn_digits().domains]
    ['clean', 'noise', 'blur', 'faded', 'bar']
    """
    stream = torch.Generator().manual_seed(seed)
    parts = deal(*load_digits(), len(WEAR), stream)
    domains = tuple(
        TensorDomain(name, wear(images.float(), stream).clamp(0, 1), labels.numpy())
        for (name, wear), (images, labels) in zip(WEAR.items(), parts, strict=True)
    )
    return DomainSet("WornDigits", tuple(str(k) for k in range(10)), domains)
