"""scikit-learn's 1797 handwritten digits, dealt out to domains: turned, or worn.

The images (8x8, ten classes, UCI "Optical Recognition of Handwritten Digits") come with scikit-learn. As in
RotatedMNIST each image belongs to exactly one domain: a network that does well on a held-out angle has not seen
those digits upright. Worn digits are the digits as they are, under pixel noise, blurred, faded, and with a bar
of ink across them, as scanners and paper do it (after Hendrycks and Dietterich, "Benchmarking Neural Network
Robustness to Common Corruptions and Perturbations", 2019).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

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


def deal(
    images: Tensor, labels: Tensor, domains: int, generator: torch.Generator
) -> list[tuple[Tensor, Tensor]]:
    """Shuffle once and deal out like cards: domain i gets samples i, i + domains, i + 2 * domains, ...

    Example:
        >>> parts = deal(torch.arange(7), torch.arange(7), 3, torch.Generator().manual_seed(0))
        >>> [len(images) for images, _ in parts]
        [3, 2, 2]
    """
    if len(images) != len(labels):
        raise DataError(f"There are {len(images)} images and {len(labels)} labels; each image needs one label.")
    if len(images) < domains:
        raise DataError(f"There are {len(images)} images for {domains} domains; each needs at least one.")
    order = torch.randperm(len(images), generator=generator)
    return [(images[order[i::domains]], labels[order[i::domains]]) for i in range(domains)]


_Wear: TypeAlias = Callable[[Tensor, torch.Generator], Tensor]


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


WEAR: dict[str, _Wear] = {
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
