"""What the rest of the package sees of data: a set of domains that share their classes.

A domain is a name, one label for each sample, and a way to read a sample; nothing is decoded before it is asked
for. A file becomes ``PIL.Image.open(file).convert("RGB")`` and nothing else: no EXIF rotation, no colour
management, palette and CMYK as Pillow converts them. Pixels then agree with every harness that uses
torchvision's default loader.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from PIL import Image

from genie_dg.check import InputError

if TYPE_CHECKING:
    from torch import Tensor

Labels: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.int64]]"

Advance: TypeAlias = "Callable[[int], object]"
"""Called with the number of samples (or bytes) that were finished since the last call."""

UNREADABLE = (OSError, ValueError, SyntaxError, Image.DecompressionBombError)
"""What Pillow raises for a file that is not a picture."""


def silent(*what: object) -> None:
    """Progress and sentences that nobody wants to see."""


class DataError(InputError):
    """What was given is not usable as data; the message says what was got, what is allowed and what to do."""


def problem_with(path: Path, error: BaseException) -> DataError:
    """The sentence for a file that cannot be read as a picture."""
    if isinstance(error, FileNotFoundError):
        return DataError(f"{path} is missing; put it back or list the folder again.")
    empty = path.is_file() and path.stat().st_size == 0
    what = "is empty (0 bytes)" if empty else f"cannot be decoded as a picture ({error})"
    return DataError(f"{path} {what}; replace or remove it, then list the folder again.")


def decode(path: Path) -> Image.Image:
    """Read a picture; what cannot be read raises `DataError` with the name of the file."""
    try:
        with path.open("rb") as file:
            return Image.open(file).convert("RGB")
    except UNREADABLE as error:
        raise problem_with(path, error) from error


def decode_bytes(data: bytes, name: str, most_pixels: int) -> Image.Image:
    """The same for the contents of a file that a stranger sent.

    Args:
        data: the contents.
        name: what a message calls them.
        most_pixels: a larger picture is refused before it is decoded.
    """
    try:
        picture = Image.open(BytesIO(data))
        if picture.width * picture.height > most_pixels:
            size = f"{picture.width} x {picture.height} pixels"
            raise DataError(f"{name} has {size}, more than {most_pixels:,}; make it smaller.")
        return picture.convert("RGB")
    except DataError:
        raise
    except UNREADABLE as error:
        what = "is empty (0 bytes)" if not data else f"cannot be decoded as a picture ({type(error).__name__})"
        raise DataError(f"{name} {what}; give a JPEG, PNG or another picture.") from error


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
        return decode(self.root / self.paths[index])


@dataclass(frozen=True)
class BytesDomain:
    """Pictures in memory as the bytes of their files, as parquet holds them; each is decoded when it is read.

    Args:
        name: of the domain.
        files: by sample, the bytes of a JPEG, PNG or the like.
        labels: classes by number.
        rows: the number of each picture in the table, from 1.
        source: the table, for messages.
    """

    name: str
    files: Sequence[bytes] = field(repr=False)
    labels: Labels = field(repr=False)
    rows: Labels = field(repr=False)
    source: str = "the table"

    def __len__(self) -> int:
        return len(self.labels)

    def where(self, index: int) -> str:
        return f"row {self.rows[index]} of {self.source}"

    def read(self, index: int) -> Image.Image:
        """Decode one picture to RGB, with the same pixels as from a file."""
        return decode_bytes(self.files[index], self.where(index), sys.maxsize)


PictureDomain: TypeAlias = FileDomain | BytesDomain
"""Pictures that are decoded when they are read: they can be augmented, resized and cached."""


@dataclass(frozen=True)
class TensorDomain:
    """Samples in memory: ``images`` is uint8 or floating point ``[n, channels, height, width]``.

    With ``as_is`` they are not pictures: ImageNet's mean and deviation are never applied to their channels.
    """

    name: str
    images: Tensor = field(repr=False)
    labels: Labels = field(repr=False)
    as_is: bool = False

    def __len__(self) -> int:
        return len(self.images)

    def where(self, index: int) -> str:
        return f"sample {index} of {self.name}"

    def read(self, index: int) -> Tensor:
        return self.images[index]


@dataclass(frozen=True)
class TableColumns:
    """The features of a table, the same for all its domains.

    Args:
        numbers: names of the columns of numbers.
        words: names of the columns of text, whose values are categories.
        levels: for each column of text its distinct values, sorted.
        domain, label: the columns that say domain and class.
    """

    numbers: tuple[str, ...]
    words: tuple[str, ...] = ()
    levels: tuple[tuple[str, ...], ...] = ()
    domain: str = "domain"
    label: str = "label"

    @property
    def width(self) -> int:
        """The most inputs that a network can get: a number each, and one for each level."""
        return len(self.numbers) + sum(map(len, self.levels))


@dataclass(frozen=True)
class TableDomain:
    """Rows of a table, before anything is learnt from them; `genie_dg.data.encoding` makes them inputs.

    Args:
        name: of the domain.
        columns: what the features are.
        numbers: float64 ``[n, len(columns.numbers)]``, NaN where a value is missing.
        words: ``[n, len(columns.words)]``, the number of the level in ``columns.levels``, -1 where missing.
        labels: classes by number.
        rows: the number of each row in the file, from 1.
    """

    name: str
    columns: TableColumns
    numbers: np.ndarray[Any, np.dtype[np.float64]] = field(repr=False)
    words: np.ndarray[Any, np.dtype[np.int64]] = field(repr=False)
    labels: Labels = field(repr=False)
    rows: Labels = field(repr=False)

    def __len__(self) -> int:
        return len(self.labels)

    def where(self, index: int) -> str:
        return f"row {self.rows[index]} ({self.name})"

    def read(self, index: int) -> Tensor:
        """The numbers of a row, then the numbers of its levels."""
        import torch

        return torch.from_numpy(np.concatenate([self.numbers[index], self.words[index]]))


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
        """Whether its samples are pictures in files, be they of their own or in a table."""
        return isinstance(self.domains[0], PictureDomain)

    @property
    def is_table(self) -> bool:
        """Whether its samples are rows of a table of numbers and categories."""
        return isinstance(self.domains[0], TableDomain)

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
            elif isinstance(domain, BytesDomain):
                for index in range(len(domain)):
                    digest.update(hashlib.sha256(domain.files[index]).digest())
            elif isinstance(domain, TensorDomain):
                digest.update(np.ascontiguousarray(domain.images.numpy()).tobytes())
            elif isinstance(domain, TableDomain):
                digest.update(repr(domain.columns).encode("utf-8"))
                digest.update(np.ascontiguousarray(domain.numbers).tobytes())
                digest.update(np.ascontiguousarray(domain.words).tobytes())
        return digest.hexdigest()[:16]
