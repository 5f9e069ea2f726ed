"""Tables of named rows: one per room, open to the user's own rows.

A table is a mapping from names to frozen rows. Outside packages add rows through entry points of the table's
group, scripts with `Table.register`. A name that is not there is answered with the names that are, and the
nearest one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from importlib.metadata import entry_points
from typing import Any, Generic, Protocol, TypeVar


class Named(Protocol):
    """Anything with a name."""

    @property
    def name(self) -> str: ...


RowT = TypeVar("RowT", bound=Named)


class UnknownName(ValueError, KeyError):
    """A name is not in its table; the message lists the names and the nearest match."""

    def __str__(self) -> str:
        return str(self.args[0])


class PluginError(ValueError):
    """A row from outside does not fit its table."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The hint at the end of a refusal: ``"; did you mean 'adam'?"``, or a full stop."""
    by_key = {key.lower(): key for key in known}
    near = get_close_matches(name.lower(), by_key, n=1)
    return f"; did you mean {by_key[near[0]]!r}?" if near else "."


def settle(owner: str, defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults with what was given put over them; a name that is not a setting is refused.

    >>> settle("Adam", {"lr": 1e-3, "beta1": 0.9}, {"lr": 1.0})
    {'lr': 1.0, 'beta1': 0.9}
    """
    for name in given:
        if name not in defaults:
            known = ", ".join(defaults) if defaults else "none"
            raise UnknownName(
                f"{owner} has no setting {name!r}; its settings are {known}{nearest(name, defaults)}"
            )
    return {**defaults, **given}


class Table(Mapping[str, RowT], Generic[RowT]):
    """Rows by name, in order; names are found in upper or lower case.

    Args:
        kind: what a row is, for messages: ``"optimizer"``.
        rows: the rows of the package itself.
        row_type: what a row must be an instance of.
        group: the entry-point group in which other packages offer rows. Each entry point is a row, or a
            function without arguments that makes one. They are loaded when the table is first listed or a name
            is not among its own.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Fruit:
    ...     name: str
    >>> table = Table("fruit", [Fruit("apple"), Fruit("pear")], Fruit, "example.fruit")
    >>> table["Apple"], list(table)
    (Fruit(name='apple'), ['apple', 'pear'])
    >>> table["aple"]
    Traceback (most recent call last):
    genie_dg._lookup.UnknownName: 'aple' is no fruit; the choice is apple, pear; did you mean 'apple'?
    """

    def __init__(self, kind: str, rows: Iterable[RowT], row_type: type[RowT], group: str) -> None:
        self.kind, self.group, self._row_type = kind, group, row_type
        self._rows: dict[str, RowT] = {row.name: row for row in rows}
        self._looked_outside = False

    def register(self, row: RowT) -> RowT:
        """Add one row and return it; registering the same row again changes nothing."""
        if not isinstance(row, self._row_type):
            raise PluginError(
                f"{row!r} came as {self.kind}; a row of this table is a {self._row_type.__module__}."
                f"{self._row_type.__qualname__}."
            )
        taken = self._find(row.name)
        if taken is not None and taken != row:
            raise PluginError(f"The name {row.name!r} is taken by another {self.kind}; choose another name.")
        self._rows[row.name] = row
        return row

    def __getitem__(self, name: str) -> RowT:
        row = self._find(name)
        if row is None:
            self._look_outside()
            row = self._find(name)
        if row is None:
            names = ", ".join(self._rows)
            raise UnknownName(f"{name!r} is no {self.kind}; the choice is {names}{nearest(name, self._rows)}")
        return row

    def __iter__(self) -> Iterator[str]:
        self._look_outside()
        return iter(tuple(self._rows))

    def __len__(self) -> int:
        self._look_outside()
        return len(self._rows)

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        if self._find(name) is None:
            self._look_outside()
        return self._find(name) is not None

    def _find(self, name: str) -> RowT | None:
        if name in self._rows:
            return self._rows[name]
        return next((row for key, row in self._rows.items() if key.lower() == name.lower()), None)

    def _look_outside(self) -> None:
        """Load the rows of other packages, once."""
        if self._looked_outside:
            return
        self._looked_outside = True
        for point in entry_points(group=self.group):
            try:
                found = point.load()
            except Exception as error:
                self._looked_outside = False
                raise PluginError(
                    f"The entry point {point.name!r} of {self.group} ({point.value}) cannot be loaded "
                    f"({type(error).__name__}: {error}); mend or uninstall the package that offers it."
                ) from error
            self.register(found if isinstance(found, self._row_type) else found())
