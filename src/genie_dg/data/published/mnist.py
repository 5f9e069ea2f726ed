"""MNIST and sets in its format (FashionMNIST, KMNIST): the four idx files of a folder, as domains.

An idx file is a magic number (two zero bytes, the type, the number of dimensions), one big-endian 32-bit size
for each dimension, then the bytes. Files may be plain or compressed with gzip. What does not fit is refused.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..coloured_digits import coloured_mnist
from ..digits import ANGLES, check_angles, deal
from ..domains import DataError, DomainSet, TensorDomain

DIGITS: tuple[str, ...] = tuple(str(digit) for digit in range(10))

FASHION = (
    *("T-shirt", "trouser", "pullover", "dress", "coat"),
    *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
)
"""The classes of FashionMNIST, in order."""

_LARGEST = 2**30
"""No idx file has more bytes than this; MNIST's has 47 million."""

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


def read_idx(path: Path, dimensions: int) -> Bytes:
    """Read one idx file of unsigned bytes, plain or ``.gz``, with 3 dimensions for images or 1 for labels.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "labels-idx1-ubyte"
        ...     _ = path.write_bytes(struct.pack(">II", 0x801, 3) + bytes([7, 2, 1]))
        ...     read_idx(path, 1).tolist()
        [7, 2, 1]
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read(_LARGEST + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read ({error}); download it again.") from error
    start = 4 + 4 * dimensions
    if len(content) < start or content[:4] != bytes((0, 0, 8, dimensions)):  # 8: unsigned bytes
        raise DataError(
            f"{path} is not an idx file of unsigned bytes with {dimensions} dimension(s); replace it by the "
            "published file."
        )
    shape = struct.unpack(f">{dimensions}I", content[4:start])
    if math.prod(shape) != len(content) - start:
        raise DataError(
            f"{path} claims the shape {shape} but has {len(content) - start:,} bytes; download it again."
        )
    return np.frombuffer(bytearray(content[start:]), dtype=np.uint8).reshape(shape)


def _find(root: Path, stem: str) -> Path:
    """The file of that name, plain before compressed, where it is published or where torchvision puts it."""
    for folder in ("", "raw", "MNIST/raw"):
        for name in (stem, f"{stem}.gz"):
            if (root / folder / name).is_file():
                return root / folder / name
    raise DataError(
        f"{root} has no file {stem} or {stem}.gz, neither itself nor in its folders raw and MNIST/raw; "
        "give the folder with the four files of MNIST."
    )


def _read_part(root: Path, part: str) -> tuple[Tensor, Tensor]:
    images = read_idx(_find(root, f"{part}-images-idx3-ubyte"), 3)
    labels = read_idx(_find(root, f"{part}-labels-idx1-ubyte"), 1)
    if len(images) != len(labels):
        raise DataError(f"{root} has {len(images):,} images and {len(labels):,} labels; download both again.")
    return torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64))


def load_mnist(root: str | Path, classes: Sequence[str] = DIGITS) -> tuple[Tensor, Tensor]:
    """Images (uint8 ``[n, height, width]``) and labels in DomainBed's order: training files, then test files.

    ``root`` has the four files in it, or in ``raw`` or ``MNIST/raw``; a label beyond the classes is refused.
    """
    root = Path(root)
    (train, train_labels), (test, test_labels) = _read_part(root, "train"), _read_part(root, "t10k")
    images, labels = torch.cat([train, test]), torch.cat([train_labels, test_labels])
    if len(labels) and int(labels.max()) >= len(classes):
        raise DataError(
            f"{root} has the label {int(labels.max())} but only {len(classes)} classes are named; "
            "name all of them."
        )
    return images, labels


def _turn(images: Tensor, angle: float) -> Tensor:
    """Turn grey uint8 images counter-clockwise with Pillow's bilinear filter, which DomainBed uses too."""
    from PIL import Image

    pictures = map(Image.fromarray, images.numpy())
    turned = [np.asarray(p.rotate(angle, Image.Resampling.BILINEAR, fillcolor=0)) for p in pictures]
    return torch.from_numpy(np.stack(turned)).unsqueeze(1)


def rotated_mnist(
    root: str | Path,
    seed: int = 0,
    angles: Sequence[float] = ANGLES,
    *,
    name: str = "RotatedMNIST",
    classes: Sequence[str] = DIGITS,
) -> DomainSet:
    """RotatedMNIST as DomainBed defines it: one domain for each angle, each image in exactly one of them.

    Divided by 255 the images are DomainBed's to the last bit, where its ``--seed`` was ``seed`` and torch's
    ``randperm`` is unchanged. DomainBed's filter is bilinear since April 2021; it was bicubic before, so older
    results were made of slightly other pixels.

    Args:
        root: a folder with idx files, see `load_mnist`.
        seed: decides which image goes to which domain. Global random streams are neither read nor moved.
        angles: degrees, all different.
        name: what tables call the set; name it when the files are not MNIST's.
        classes: the names of the classes, for example `FASHION`.
    """
    check_angles(angles)
    images, labels = load_mnist(root, classes)
    parts = deal(images, labels, len(angles), torch.Generator().manual_seed(seed))
    domains = [
        TensorDomain(f"{angle:g}", _turn(pixels, angle), digits.numpy())
        for angle, (pixels, digits) in zip(angles, parts, strict=True)
    ]
    return DomainSet(name, tuple(classes), tuple(domains))


def coloured_mnist_from(root: str | Path, seed: int = 0) -> DomainSet:
    """ColoredMNIST from the idx files of a folder (see `load_mnist`); `coloured_mnist` has the definition."""
    return coloured_mnist(*load_mnist(root), seed)
