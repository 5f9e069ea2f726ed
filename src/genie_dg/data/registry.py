"""Everything that can be trained on, by name or by path: one registry, one call.

``open_data("styleshapes")`` is an embedded set, ``open_data("PACS", root)`` a published one,
``open_data("my/folder")``, ``open_data("list.csv")`` and ``open_data("table.parquet", columns=...)`` are the
user's own.
"""

from __future__ import annotations

import csv
import importlib.util
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

from genie_dg.check import MissingPackage, did_you_mean, folder
from genie_dg.registry import Registry

from .columns import Columns
from .domains import DataError, DomainSet
from .image_folders import folders_in, open_folder, open_list
from .published.catalog import PUBLISHED, PublishedSet

TABLES = (".csv", ".tsv", ".parquet")
"""How the names of tables end."""
Opener: TypeAlias = "Callable[[Path | None], DomainSet]"
"""Opens a set; called with the folder that holds data sets, where one was given."""


@dataclass(frozen=True)
class SetRow:
    """One set.

    Args:
        name: what it is asked for by.
        kind: made by this package, published by others, or made of files of others.
        summary: one line for listings.
        open: opens it.
        small_images: whether samples are small pictures in memory, for which protocols have settings of their
            own; otherwise they are pictures of the usual size in files.
        domain_names: its domains in order; empty where that is not known before it is opened.
        set_name: the name of the `DomainSet` that is opened, as runs and tables carry it; empty for ``name``.
    """

    name: str
    kind: Literal["embedded", "published", "files"]
    summary: str
    open: Opener
    small_images: bool = False
    domain_names: tuple[str, ...] = ()
    set_name: str = ""


def _call(function: str, *arguments: Path) -> DomainSet:
    """Call ``module.function`` of this package, whose module is imported now and not before."""
    opened: DomainSet = pkgutil.resolve_name(f"{__package__}.{function}")(*arguments)
    return opened


def _embedded(name: str, summary: str, function: str, domains: tuple[str, ...], set_name: str = "") -> SetRow:
    return SetRow(name, "embedded", summary, lambda root: _call(function), True, domains, set_name)


def _mnist(name: str, summary: str, function: str, domains: tuple[str, ...]) -> SetRow:
    def open_set(root: Path | None) -> DomainSet:
        return _call(f"published.mnist.{function}", folder_of(name, root, ("MNIST", "mnist")))

    return SetRow(name, "files", summary, open_set, True, domains)


def _published(facts: PublishedSet) -> SetRow:
    def open_set(root: Path | None) -> DomainSet:
        opened = open_folder(folder_of(facts.name, root, facts.folders), facts.name)
        return replace(opened, variant=published_variant(facts, opened))

    summary = f"{facts.class_count} classes, domains {', '.join(facts.domains)}"
    return SetRow(facts.name, "published", summary, open_set, domain_names=facts.domains)


def _files(
    name: str, summary: str, function: str, folders: tuple[str, ...], domains: tuple[str, ...] = ()
) -> SetRow:
    """A set of pictures in files that are sorted in a way of their own, which one function reads."""

    def open_set(root: Path | None) -> DomainSet:
        return _call(f"published.{function}", folder_of(name, root, folders))

    return SetRow(name, "files", summary, open_set, domain_names=domains)


def _spawrious(name: str) -> SetRow:
    kind, _, level = name.removeprefix("Spawrious").partition("_")
    pairs = {"O2O": "one to one", "M2M": "many to many"}[kind]

    def open_set(root: Path | None) -> DomainSet:
        from .published.spawrious import spawrious

        return spawrious(name, folder_of(name, root, ("spawrious224", "spawrious", "Spawrious")))

    summary = f"four breeds of dogs whose place misleads, {pairs}, {level}"
    return SetRow(name, "files", summary, open_set, domain_names=_GROUPS)


def _open_sviro(root: Path | None) -> DomainSet:
    data = open_folder(folder_of("SVIRO", root, ("sviro", "SVIRO", "SVIRO_DOMAINBED")), "SVIRO")
    names = tuple(domain.name for domain in data.domains)
    if names != _CARS:
        raise DataError(
            f"SVIRO has the domains {', '.join(_CARS)}, and what is here has {', '.join(names)}; give the "
            "folder that holds one folder for each car."
        )
    return data


def published_variant(facts: PublishedSet, data: DomainSet) -> str:
    """The published version whose domains, classes and counts a set has; empty when it is none of them."""
    names = tuple(domain.name for domain in data.domains)
    classes_fit = data.classes == facts.classes if facts.classes else len(data.classes) == facts.class_count
    if names != facts.domains or not classes_fit:
        return ""
    return facts.variant_of({domain.name: len(domain) for domain in data.domains})


def folder_of(name: str, root: Path | None, folders: tuple[str, ...]) -> Path:
    """The folder of a set: ``root`` itself, or one of its known names below ``root``."""
    if root is None:
        fetch = f", or fetch it with genie-dg data download {name} --root FOLDER" if name in PUBLISHED else ""
        raise DataError(
            f"{name} is read from files, and no folder was given; name the folder that holds it with root "
            f"(--root){fetch}."
        )
    inside = [root / known for known in folders if (root / known).is_dir()]
    return inside[0] if inside else folder(root, f"give the folder that holds {name}", DataError)


_TURNS = ("0", "15", "30", "45", "60", "75")
_COLOURS = ("+90%", "+80%", "-90%")
_NOISE = ("0", "1", "2")
_GROUPS = ("Test", "SC_group_1", "SC_group_2")
_HOSPITALS = tuple(f"hospital_{k}" for k in range(5))
_CARS = ("aclass", "escape", "hilux", "i3", "lexus", "tesla", "tiguan", "tucson", "x5", "zoe")
_DOGS = tuple(f"Spawrious{kind}_{level}" for kind in ("O2O", "M2M") for level in ("easy", "medium", "hard"))

_ROWS = (
    _embedded(
        "digits",
        "scikit-learn's digits turned by 0 to 75 degrees",
        "digits.rotated_digits_set",
        tuple(f"{angle} degrees" for angle in _TURNS),
    ),
    _embedded(
        "coloured-digits",
        "the same digits, colour tied to the label",
        "coloured_digits.coloured_digits",
        _COLOURS,
        "ColouredDigits",
    ),
    _embedded(
        "styleshapes",
        "seven shapes drawn in four styles, a miniature of PACS",
        "styleshapes.styleshapes",
        ("art", "cartoon", "photo", "sketch"),
        "StyleShapes",
    ),
    _embedded(
        "worn-digits",
        "the same digits: clean, with noise, blurred, faded, with a bar of ink",
        "worn_digits.worn_digits",
        ("clean", "noise", "blur", "faded", "bar"),
        "WornDigits",
    ),
    *map(_published, PUBLISHED.values()),
    _mnist("RotatedMNIST", "MNIST turned by 0 to 75 degrees (idx files)", "rotated_mnist", _TURNS),
    _mnist(
        "ColoredMNIST", "MNIST with colour tied to a noisy label (idx files)", "coloured_mnist_from", _COLOURS
    ),
    _files(
        "WILDSCamelyon",
        "WILDS's Camelyon17: tumour or not, domains are hospitals",
        "wilds.camelyon17",
        ("camelyon17_v1.0", "camelyon17"),
        _HOSPITALS,
    ),
    _files(
        "WILDSFMoW",
        "WILDS's FMoW: land use from satellites, domains are regions",
        "wilds.fmow",
        ("fmow_v1.1", "fmow"),
    ),
    _files(
        "WILDSiWildCam",
        "WILDS's iWildCam: animals, domains are camera traps",
        "wilds.iwildcam",
        ("iwildcam_v2.0", "iwildcam"),
    ),
    SetRow("SVIRO", "files", "who sits where in ten cars", _open_sviro, domain_names=_CARS),
    *map(_spawrious, _DOGS),
    _embedded("Debug28", "noise of 28 pixels, to try code with", "debug_sets.debug28", _NOISE),
    replace(
        _embedded("Debug224", "noise of 224 pixels, to try code with", "debug_sets.debug224", _NOISE),
        small_images=False,
    ),
)

SETS = Registry("data set", _ROWS, SetRow, "genie_dg.data")
"""By name, in the order of listings. ``SETS.register(SetRow(...))`` adds one."""


def row_of(name: str) -> SetRow | None:
    """The row with this name, or whose set has this name in runs and tables; None for a user's own data.

    >>> row_of("ColouredDigits").name, row_of("my_pictures")
    ('coloured-digits', None)
    """
    if name in SETS:
        return SETS[name]
    return next((row for row in SETS.values() if row.set_name == name), None)


def open_data(
    what: str | Path,
    root: str | Path | None = None,
    columns: Columns = Columns(),  # noqa: B008  # frozen
) -> DomainSet:
    """A set by its name, or the user's own by its path.

    Args:
        what: a name of `SETS`, or the set's name in runs; a folder ``<domain>/<class>/<picture>``; a CSV, JSON
            or JSONL list of pictures; or a table, CSV or parquet, of numbers or (parquet) pictures.
        root: for published sets, the folder that holds them.
        columns: of a table: which column says what.

    >>> [domain.name for domain in open_data("digits").domains][:2]
    ['0 degrees', '15 degrees']
    """
    path = Path(what)
    row = row_of(str(what))
    if row is None and is_table(path, columns):
        return _opened_table(path, columns)
    if row is not None or path.exists():
        refuse_columns(what, columns)
    if row is not None:
        return row.open(None if root is None else Path(root))
    if path.is_dir():
        return open_folder(path)
    if path.is_file():
        return open_list(path)
    hint = did_you_mean(str(what), SETS)
    raise DataError(
        f"Got {str(what)!r}; expected a folder, a list or the name of a data set ({', '.join(SETS)}){hint}"
    )


def refuse_columns(what: str | Path, columns: Columns) -> None:
    """Refuse the names of columns for a set that has none."""
    if columns.given:
        raise DataError(f"got a column for {what}, which is not a table; leave the names of columns out.")


def is_table(path: Path, columns: Columns) -> bool:
    """Whether a path is a table: parquet, also a folder of it, or a CSV that is not a list of pictures.

    A CSV with a column ``path`` is such a list.
    """
    if path.is_dir():
        inside = any(any(place.glob("*.parquet")) for place in (path, path / "data"))
        return inside and set(folders_in(path)) <= {"data"}
    if not path.is_file() or path.suffix.lower() not in TABLES:
        return False
    if path.suffix.lower() != ".csv" or columns.given:
        return True
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = next(csv.reader(file), [])
    except (OSError, UnicodeDecodeError, csv.Error):
        return False  # whoever reads the list says why
    return bool(first) and "path" not in first


def _opened_table(path: Path, columns: Columns) -> DomainSet:
    """A table, by a module that needs polars and is imported now and not before."""
    if importlib.util.find_spec("polars") is None:
        raise MissingPackage(
            'A table needs polars, not installed here; run pip install "genie-dg[bench]" and try again.'
        )
    from .picture_tables import image_columns, open_pictures
    from .tables import open_table

    if image_columns(path):
        return open_pictures(path, columns)
    if columns.image:
        raise DataError(
            f"got --image-column {columns.image!r}, and {path} has no column of pictures; leave it out."
        )
    return open_table(path, columns)
