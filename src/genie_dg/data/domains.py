"""What the rest of the package sees of data: a set of domains that share their classes.

A domain is a name, one label for each sample, and a way to read a sample; nothing is decoded before it is asked
for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from genie_dg.check import InputError

if TYPE_CHECKING:
    from PIL import Image
    from torch import Tensor

Labels: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.int64]]"


class DataError(InputError):
    """What was given is not usable as data; the message says what was got, what is allowed and what to do."""


class Domain(Protocol):
    """Samples that were recorded in one way: photos, sketches, one camera, one angle."""

    @property
    def name(self) -> str: ...

    @property
    def labels(self) -> Labels: ...

    def __len__(self) -> int: ...

    def read(self, index: int) -> Image.Image | Tensor:
        """One sample: a decoded RGB picture, or a tensor ``[channels, height, width]``."""
        ...

    def where(self, index: int) -> str:
        """What a message calls this sample: the path of its file where it has one."""
        ...


@dataclass(frozen=True)
class FileDomain:
    """Pictures in files. ``paths`` are relative to ``root``, in the order that splits count."""

    name: str
    root: Path
    paths: Sequence[str] = field(repr=False)
    labels: Labels = field(repr=False)

    def __len__(self) -> int:
        return len(self.paths)

    def where(self, index: int) -> str:
        return str(self.root / self.paths[index])

    def read(self, index: int) -> Image.Image:
        """Decode one file to RGB, exactly as torchvision's ``default_loader`` does."""
        from .decode import decode

        return decode(self.root / self.paths[index])


@dataclass(frozen=True)
class TensorDomain:
    """Samples in memory: ``images`` is uint8 or floating point ``[n, channels, height, width]``."""

    name: str
    images: Tensor = field(repr=False)
    labels: Labels = field(repr=False)

    def __len__(self) -> int:
        return len(self.images)

    def where(self, index: int) -> str:
        return f"sample {index} of {self.name}"

    def read(self, index: int) -> Tensor:
        return self.images[index]


@dataclass(frozen=True)
class DatasetDomain:
    """A map-style ``torch.utils.data.Dataset`` whose items are pairs of sample and label."""

    name: str
    dataset: Any = field(repr=False)
    labels: Labels = field(repr=False)

    def __len__(self) -> int:
        return len(self.labels)

    def where(self, index: int) -> str:
        return f"sample {index} of {self.name}"

    def read(self, index: int) -> Image.Image | Tensor:
        sample: Image.Image | Tensor = self.dataset[index][0]
        return sample


@dataclass(frozen=True)
class DomainSet:
    """Domains in the order that indices and splits count, and the names of the classes they share.

    Args:
        name: what tables call it.
        classes: class k of every domain is ``classes[k]``.
        domains: in order.
        variant: which published version of the set this is, where several exist; empty otherwise.
    """

    name: str
    classes: tuple[str, ...]
    domains: tuple[Domain, ...]
    variant: str = ""

    def __post_init__(self) -> None:
        if not self.domains:
            raise DataError(f"{self.name} has no domain; give at least one folder of classes.")
        names = [domain.name for domain in self.domains]
        if len(set(names)) != len(names):
            raise DataError(f"{self.name} has the domains {names}; every domain needs a name of its own.")

    def __len__(self) -> int:
        return sum(len(domain) for domain in self.domains)

    @property
    def in_files(self) -> bool:
        """Whether its samples are pictures in files."""
        return isinstance(self.domains[0], FileDomain)

    def digest(self) -> str:
        """Sixteen hexadecimal digits that name classes, domains, labels and samples.

        Files are named by their relative paths, not their contents: reading them all would take minutes.
        """
        digest = hashlib.sha256(repr(self.classes).encode("utf-8"))
        for domain in self.domains:
            digest.update(repr(domain.name).encode("utf-8"))
            digest.update(np.ascontiguousarray(domain.labels).tobytes())
            if isinstance(domain, FileDomain):
                digest.update("\n".join(domain.paths).encode("utf-8", "surrogateescape"))
            elif isinstance(domain, TensorDomain):
                digest.update(np.ascontiguousarray(domain.images.numpy()).tobytes())
        return digest.hexdigest()[:16]
