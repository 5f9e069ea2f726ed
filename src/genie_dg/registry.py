"""Registries of named rows: one for each package, open to the user's own rows.

A registry is a mapping from names to frozen rows. Outside packages add rows through entry points of the
registry's group, scripts with `Registry.register`. An unknown name is answered with the known ones and the
nearest match.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import entry_points
from typing import Any, Generic, Protocol, TypeVar

from .check import InputError, did_you_mean


class Named(Protocol):
    """Anything with a name."""

    @property
    def name(self) -> str: ...


RowT = TypeVar("RowT", bound=Named)


class UnknownName(InputError, KeyError):
    """A name is not in its registry; the message lists the names and the nearest match."""

    def __str__(self) -> str:
        return str(self.args[0])


class PluginError(InputError):
    """A row from outside does not fit its registry."""


def with_defaults(owner: str, defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults, with the given settings in their place; a name that is not a setting is refused.

    >>> with_defaults("Adam", {"lr": 1e-3, "beta1": 0.9}, {"lr": 1.0})
    {'lr': 1.0, 'beta1': 0.9}
    """
    for name in given:
        if name not in defaults:
            names = ", ".join(defaults) if defaults else "none"
            raise UnknownName(
                f"{owner} has no setting {name!r}; its settings are {names}{did_you_mean(name, defaults)}"
            )
    return {**defaults, **given}


class Registry(Mapping[str, RowT], Generic[RowT]):
    """Rows by name, in order; upper and lower case do not matter.

    Args:
        kind: what a row is, for messages: ``"optimizer"``.
        rows: the rows of the package itself.
        row_type: what a row must be an instance of.
        group: the entry-point group in which other packages offer rows. Each entry point is a row, or a
            function without arguments that makes one. They are loaded when the registry is first listed or a
            name is not among its own.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Fruit:
    ...     name: str
    >>> fruits = Registry("fruit", [Fruit("apple"), Fruit("pear")], Fruit, "example.fruit")
    >>> fruits["Apple"], list(fruits)
    (Fruit(name='apple'), ['apple', 'pear'])
    >>> fruits["aple"]
    Traceback (most recent call last):
    genie_dg.registry.UnknownName: There is no fruit 'aple'; the choice is apple, pear; did you mean 'apple'?
    """

    def __init__(self, kind: str, rows: Iterable[RowT], row_type: type[RowT], group: str) -> None:
        self.kind, self.group, self._row_type = kind, group, row_type
        self._rows: dict[str, RowT] = {row.name: row for row in rows}
        self._loaded = False

    def register(self, row: RowT) -> RowT:
        """Add one row and return it; registering the same row again changes nothing."""
        if not isinstance(row, self._row_type):
            raise PluginError(
                f"Got {row!r} as {self.kind}; expected a {self._row_type.__module__}."
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
            self._load_entry_points()
            row = self._find(name)
        if row is None:
            names = ", ".join(self._rows)
            hint = did_you_mean(str(name), self._rows)
            raise UnknownName(f"There is no {self.kind} {name!r}; the choice is {names}{hint}")
        return row

    def __iter__(self) -> Iterator[str]:
        self._load_entry_points()
        return iter(tuple(self._rows))

    def __len__(self) -> int:
        self._load_entry_points()
        return len(self._rows)

    def _find(self, name: str) -> RowT | None:
        if name in self._rows:
            return self._rows[name]
        return next((row for key, row in self._rows.items() if key.lower() == str(name).lower()), None)

    def _load_entry_points(self) -> None:
        """Load the rows of other packages, once."""
        if self._loaded:
            return
        self._loaded = True
        for point in entry_points(group=self.group):
            try:
                row = point.load()
            except Exception as error:
                self._loaded = False
                raise PluginError(
                    f"The entry point {point.name!r} of {self.group} ({point.value}) cannot be loaded "
                    f"({type(error).__name__}: {error}); repair or uninstall the package that offers it."
                ) from error
            self.register(row if isinstance(row, self._row_type) else row())
