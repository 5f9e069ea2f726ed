"""Coloured digits: the colour foretells the label better than the shape does, until the held-out domain.

ColoredMNIST as DomainBed defines it (Arjovsky and others, "Invariant Risk Minimization", 2019; Gulrajani and
Lopez-Paz, 2021). The label is whether the digit is below 5, and a quarter of the labels are wrong. The colour
follows the label and is flipped with probability 0.1, 0.2 or 0.9: in two domains it is right more often than
the shape (75 %), and in the third it is mostly wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .digits import deal, load_digits
from .domains import DataError, DomainSet, TensorDomain

FLIPS: tuple[float, ...] = (0.1, 0.2, 0.9)
"""For each domain the probability that the colour differs from the label."""

_CLASSES: tuple[str, ...] = ("5 to 9", "0 to 4")
"""Class 1 is the lower half of the digits, up to the noise."""

_LABEL_NOISE = 0.25


def colour(images: Tensor, digits: Tensor, flip: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Give each grey image ``[n, height, width]`` one of two colours, and its digit a noisy binary label.

    The colour differs from the noisy label with probability ``flip``. First the label noise of all is drawn,
    then the colour flips of all.

    Returns:
        Images ``[n, 2, height, width]`` in which one channel is empty, and int64 labels.

    Example:
        >>> one = torch.full((1, 1, 1), 9, dtype=torch.uint8)
        >>> pixels, label = colour(one, torch.tensor([3]), 0.0, torch.Generator().manual_seed(0))
        >>> pixels.flatten().tolist(), label.item()  # colour 1 lies in channel 1
        ([0, 9], 1)
    """
    noise = torch.rand(len(digits), generator=generator) < _LABEL_NOISE
    labels = (digits < 5) ^ noise
    colours = labels ^ (torch.rand(len(digits), generator=generator) < flip)
    channels = torch.stack([~colours, colours], dim=1).to(images.dtype)
    return images.unsqueeze(1) * channels[:, :, None, None], labels.to(torch.int64)


def coloured_mnist(
    images: Tensor,
    labels: Tensor,
    seed: int | torch.Generator = 0,
    *,
    flips: Sequence[float] = FLIPS,
    name: str = "ColoredMNIST",
) -> DomainSet:
    """ColoredMNIST from grey images and their digits: three domains, two channels, two classes.

    The numbers are drawn in DomainBed's order: one permutation of all images, then for each domain the label
    noise and the colour flips. With the seed that its ``train.py`` was given (``--seed``) they are DomainBed's
    on a CPU, and so are the samples, unless another torch release changes ``randperm`` or ``rand`` or something
    drew from the global generator before. Pixels are kept as uint8; divided by 255 in float32 they are its own.

    Args:
        images: uint8 ``[n, height, width]``; training images, then test images.
        labels: integers ``[n]`` from 0 to 9.
        seed: a number, or a ``torch.Generator`` on the CPU, which is then moved on.
        flips: the probability of a flipped colour in each domain.
        name: what tables call the set.
    """
    if not flips or not all(0 <= flip <= 1 for flip in flips):
        raise DataError(f"got flips={list(flips)}; expected one or more probabilities from 0 to 1.")
    generator = seed if isinstance(seed, torch.Generator) else torch.Generator().manual_seed(seed)
    domains = []
    for flip, part in zip(flips, deal(images, labels, len(flips), generator), strict=True):
        pixels, noisy = colour(*part, flip, generator)
        domains.append(TensorDomain(_name(flip), pixels, noisy.numpy()))
    return DomainSet(name, _CLASSES, tuple(domains), variant=f"{images.shape[1]} x {images.shape[2]}")


def _name(flip: float) -> str:
    """DomainBed's name of a domain: how well, in which direction, the colour foretells the label."""
    agree = round(100 * (1 - flip), 6)
    return f"+{agree:g}%" if agree >= 50 else f"-{100 - agree:g}%"


def coloured_digits(seed: int = 0, flips: Sequence[float] = FLIPS) -> DomainSet:
    """ColoredMNIST's definition on scikit-learn's 1797 digits: 599 images of 8 x 8 pixels in each domain.

    Example:
        >>> digits = coloured_digits()
        >>> [(domain.name, len(domain)) for domain in digits.domains]
        [('+90%', 599), ('+80%', 599), ('-90%', 599)]
    """
    images, labels = load_digits()
    pixels = (images[:, 0] * 255).round().to(torch.uint8)
    return coloured_mnist(pixels, labels, seed, flips=flips, name="ColouredDigits")
