"""Everything that can be trained on, by name or by path: one table, one call.

``open_data("styleshapes")`` is an embedded set, ``open_data("PACS", root)`` a published one,
``open_data("my/folder")`` and ``open_data("list.csv")`` are the user's own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from genie_dg.check import did_you_mean
from genie_dg.registry import Registry

from .catalog import PUBLISHED, PublishedSet
from .domains import DataError, DomainSet, TensorDomain
from .image_folders import open_folder, open_list


@dataclass(frozen=True)
class SetRow:
    """One set: what it is, where it comes from, how it is opened (with the folder that holds data sets)."""

    name: str
    kind: Literal["embedded", "published", "files"]
    summary: str
    open: Callable[[Path | None], DomainSet]
    small_images: bool = False


def _rotated_digits(root: Path | None) -> DomainSet:
    from .digits import rotated_digits

    domains = tuple(
        TensorDomain(f"{d.angle:g} degrees", d.images, d.labels.numpy().astype(np.int64))
        for d in rotated_digits()
    )
    return DomainSet("digits", tuple(str(k) for k in range(10)), domains)


def _coloured_digits(root: Path | None) -> DomainSet:
    from .coloured import coloured_digits

    return coloured_digits()


def _styleshapes(root: Path | None) -> DomainSet:
    from .styleshapes import styleshapes

    return styleshapes()


def _rotated_mnist(root: Path | None) -> DomainSet:
    from .mnist import rotated_mnist

    return rotated_mnist(folder_of("RotatedMNIST", root, ("MNIST", "mnist")))


def _coloured_mnist(root: Path | None) -> DomainSet:
    from .mnist import coloured_mnist_from

    return coloured_mnist_from(folder_of("ColoredMNIST", root, ("MNIST", "mnist")))


def _published(facts: PublishedSet) -> Callable[[Path | None], DomainSet]:
    def opened(root: Path | None) -> DomainSet:
        found = open_folder(folder_of(facts.name, root, facts.folders), facts.name)
        return DomainSet(found.name, found.classes, found.domains, variant_of(facts, found))

    return opened


def variant_of(facts: PublishedSet, found: DomainSet) -> str:
    """The published version whose counts these are; empty when it is none of them."""
    names = tuple(domain.name for domain in found.domains)
    if names != facts.domains or len(found.classes) != facts.class_count:
        return ""
    if facts.classes and found.classes != facts.classes:
        return ""
    return facts.variant_of({domain.name: len(domain) for domain in found.domains})


def folder_of(name: str, root: Path | None, folders: tuple[str, ...]) -> Path:
    """The folder of a set: ``root`` itself, or one of its known names below ``root``."""
    if root is None:
        raise DataError(
            f"{name} is read from files, and no folder was given; name the folder that holds it with root "
            f"(--root), or fetch it with genie-dg data download {name} --root FOLDER."
        )
    for folder in folders:
        if (root / folder).is_dir():
            return root / folder
    if not root.is_dir():
        raise DataError(f"{root} is no folder; give the folder that holds {name}.")
    return root


_ROWS = (
    SetRow(
        "digits",
        "embedded",
        "scikit-learn's digits turned by 0 to 75 degrees",
        _rotated_digits,
        small_images=True,
    ),
    SetRow(
        "coloured-digits",
        "embedded",
        "the same digits, colour tied to the label",
        _coloured_digits,
        small_images=True,
    ),
    SetRow(
        "styleshapes",
        "embedded",
        "seven shapes drawn in four styles, a miniature of PACS",
        _styleshapes,
        small_images=True,
    ),
    *(
        SetRow(
            facts.name,
            "published",
            f"{facts.class_count} classes, domains {', '.join(facts.domains)}",
            _published(facts),
        )
        for facts in PUBLISHED.values()
    ),
    SetRow(
        "RotatedMNIST",
        "files",
        "MNIST turned by 0 to 75 degrees (idx files)",
        _rotated_mnist,
        small_images=True,
    ),
    SetRow(
        "ColoredMNIST",
        "files",
        "MNIST with colour tied to a noisy label (idx files)",
        _coloured_mnist,
        small_images=True,
    ),
)

SETS = Registry("data set", _ROWS, SetRow, "genie_dg.data")
"""By name, in the order of listings. ``SETS.register(SetRow(...))`` adds one."""


def open_data(what: str | Path, root: str | Path | None = None) -> DomainSet:
    """A set by its name, or the user's own by its path.

    Args:
        what: a name of `SETS`, a folder ``<domain>/<class>/<picture>``, or a CSV, JSON or JSONL list.
        root: for published sets, the folder that holds them.

    >>> [domain.name for domain in open_data("digits").domains][:2]
    ['0 degrees', '15 degrees']
    """
    path = Path(what)
    if str(what) in SETS:
        return SETS[str(what)].open(None if root is None else Path(root))
    if path.is_dir():
        return open_folder(path)
    if path.is_file():
        return open_list(path)
    hint = did_you_mean(str(what), SETS)
    raise DataError(
        f"{str(what)!r} is neither a folder, a list nor a set that is known ({', '.join(SETS)}){hint}"
    )
