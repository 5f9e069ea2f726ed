"""Rotated digits: scikit-learn's 1797 handwritten digits, dealt out to domains and turned.

The images (8x8, ten classes, UCI "Optical Recognition of Handwritten Digits") come with scikit-learn. A domain
is an angle. As in RotatedMNIST each image belongs to exactly one domain: a network that does well on a held-out
angle has not seen those digits upright.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from genie_dg.check import MissingPackage

from .domains import DataError, DomainSet, TensorDomain

ANGLES: tuple[float, ...] = (0, 15, 30, 45, 60, 75)
"""The domains of RotatedMNIST, in degrees counter-clockwise."""


class TurnedDigits(NamedTuple):
    """One domain: every image is turned by ``angle`` degrees."""

    angle: float
    images: Tensor  # float32 [n, 1, 8, 8], 0 (paper) to 1 (ink)
    labels: Tensor  # int64 [n], 0 to 9
    source: Tensor  # int64 [n], the position of each image in scikit-learn's data set


def check_angles(angles: Sequence[float]) -> None:
    """Refuse an empty list of angles, and two domains with one angle."""
    if not angles or len(set(angles)) != len(angles):
        raise DataError(f"got angles={list(angles)}; expected one or more, all different.")


def rotate(images: Tensor, angle: float) -> Tensor:
    """Turn images counter-clockwise about their centre: bilinear, with zeros outside.

    Args:
        images: floating-point ``[n, channels, side, side]``.
        angle: degrees. 90 is ``torch.rot90(images, 1, (-2, -1))``.

    Example:
        >>> corner = torch.zeros(1, 1, 2, 2)
        >>> corner[0, 0, 0, 1] = 1.0  # the upper right corner goes to the upper left one
        >>> rotate(corner, 90).round().int().tolist()
        [[[[1, 0], [0, 0]]]]
    """
    if images.dim() != 4 or not images.is_floating_point() or images.shape[-2] != images.shape[-1]:
        raise DataError(
            f"rotate got a tensor of shape {tuple(images.shape)} and dtype {images.dtype}; "
            "expected square floating-point images of shape [n, channels, side, side]."
        )
    cosine, sine = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    # The grid says where each output pixel comes from, with y pointing down.
    rows = [[cosine, -sine, 0.0], [sine, cosine, 0.0]]
    inverse = torch.tensor(rows, dtype=images.dtype, device=images.device)
    grid = F.affine_grid(inverse.expand(len(images), 2, 3), list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def load_digits() -> tuple[Tensor, Tensor]:
    """All 1797 digits upright: float64 images ``[n, 1, 8, 8]`` from 0 to 1, and int64 labels."""
    try:
        from sklearn import datasets  # type: ignore[import-untyped]
    except ModuleNotFoundError as error:
        raise MissingPackage(
            f"The digits need scikit-learn, but {error.name} is not installed; "
            'run pip install "genie-dg[bench]" and try again.'
        ) from error
    images, labels = datasets.load_digits(return_X_y=True)
    pixels = torch.from_numpy(images).to(torch.float64).reshape(-1, 1, 8, 8) / 16
    return pixels, torch.from_numpy(labels).to(torch.int64)


def rotated_digits(angles: Sequence[float] = ANGLES, seed: int = 0) -> list[TurnedDigits]:
    """The domains, one for each angle in degrees; domains differ in size by at most one image.

    The seed decides which image belongs to which domain. Torch's global generator is neither read nor moved.
    """
    check_angles(angles)
    images, labels = load_digits()
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    domains = []
    for position, angle in enumerate(angles):
        source = order[position :: len(angles)]
        # Turned in float64: bilinear weights that should be 0 are then below float32's resolution.
        turned = rotate(images[source], angle).to(torch.float32)
        domains.append(TurnedDigits(angle, turned, labels[source], source))
    return domains


def rotated_digits_set() -> DomainSet:
    """The domains as a `DomainSet` named ``"digits"``."""
    domains = [TensorDomain(f"{d.angle:g} degrees", d.images, d.labels.numpy()) for d in rotated_digits()]
    return DomainSet("digits", tuple(str(digit) for digit in range(10)), tuple(domains))
