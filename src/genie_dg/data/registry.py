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

import msgspec

from genie_dg.check import MissingPackage, did_you_mean, folder
from genie_dg.registry import Registry

from .columns import Columns
from .domains import DataError, DomainSet
from .image_folders import folders_in, open_folder, open_list
from .published.catalog import PUBLISHED, PublishedSet

_TABLES = (".csv", ".tsv", ".parquet")
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


@dataclass(frozen=True)
class _SetFacts:
    """A row of sets.toml: what `SetRow` has, and the function of this package that opens the set.

    Args:
        function: called with the folder of the set, if it is read from files, and with ``argument``, if any.
        folders: names that its folder goes by below the folder that holds data sets.
        argument: of the function.
    """

    name: str
    kind: Literal["embedded", "published", "files"]
    summary: str = ""
    function: str = ""
    domain_names: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    argument: str = ""
    small_images: bool = False
    set_name: str = ""

    def open(self, root: Path | None) -> DomainSet:
        """Open the set; the module of its function is imported now and not before."""
        given = [self.argument] if self.argument else []
        function = pkgutil.resolve_name(f"{__package__}.{self.function}")
        if self.kind == "embedded":
            embedded: DomainSet = function(*given)
            return embedded
        opened: DomainSet = function(folder_of(self.name, root, self.folders), *given)
        names = tuple(domain.name for domain in opened.domains)
        if self.kind == "published":
            return replace(opened, variant=published_variant(PUBLISHED[self.name], opened))
        if self.domain_names and names != self.domain_names:
            raise DataError(
                f"{self.name} has the domains {', '.join(self.domain_names)}, and what is here has "
                f"{', '.join(names)}; give the folder of the whole set."
            )
        return opened


def _published(facts: PublishedSet) -> _SetFacts:
    summary = f"{facts.class_count} classes, domains {', '.join(facts.domains)}"
    opener = "image_folders.open_folder"
    return _SetFacts(facts.name, "published", summary, opener, facts.domains, facts.folders, facts.name)


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


_FILE = Path(__file__).with_name("sets.toml").read_bytes()
_FACTS = [
    _published(PUBLISHED[facts.name]) if facts.kind == "published" else facts
    for facts in msgspec.toml.decode(_FILE, type=dict[str, tuple[_SetFacts, ...]])["sets"]
]
_ROWS = [SetRow(f.name, f.kind, f.summary, f.open, f.small_images, f.domain_names, f.set_name) for f in _FACTS]
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
    if not path.is_file() or path.suffix.lower() not in _TABLES:
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
