"""What a printed table is, and how its text is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ._base import PaperError


@dataclass(frozen=True)
class Value:
    """A printed number; ``error`` is ``None`` where none is printed."""

    value: float
    error: float | None = None


@dataclass(frozen=True)
class Quoted:
    """One table of the paper.

    Args:
        experiment: the part of the paper it belongs to, as the command line calls it.
        dataset: the data set it is about; empty where data sets are its columns.
        place: in the paper, with the label of its source.
        columns: heads of the cells.
        rows: by name, the cells.
        marks: by name, ``*`` or ``†`` where the paper took the row from others.
    """

    experiment: str
    dataset: str
    place: str
    columns: tuple[str, ...]
    rows: dict[str, tuple[Value, ...]]
    marks: dict[str, str]

    def cell(self, row: str, column: str) -> Value:
        """One number."""
        return self.rows[row][self.columns.index(column)]

    def cells(self) -> Iterator[tuple[str, str, Value]]:
        """Every number with its row and column."""
        for row, values in self.rows.items():
            for column, value in zip(self.columns, values, strict=True):
                yield row, column, value


@dataclass(frozen=True)
class Inconsistency:
    """Two places of the paper that disagree: ``printed`` there, ``other`` by ``reason``."""

    place: str
    row: str
    column: str
    printed: float
    other: float
    reason: str


def quoted(experiment: str, dataset: str, place: str, columns: str, text: str) -> Quoted:
    """A table from its text: a line for each row, its name first.

    >>> found = quoted("optimizers", "PACS", "Table 0", "Art Avg", "Adam* 88.0±1.2 84.3")
    >>> found.cell("Adam", "Art"), found.marks
    (Value(value=88.0, error=1.2), {'Adam': '*'})
    """
    heads, rows, marks = tuple(columns.split()), {}, {}
    for line in text.strip().splitlines():
        name, *cells = line.split()
        if len(cells) != len(heads):
            raise PaperError(f"{place} has the line {line!r}, but {len(heads)} columns; give a cell for each.")
        plain = name.rstrip("*†")
        if plain != name:
            marks[plain] = name[len(plain) :]
        rows[plain] = tuple(_value(cell) for cell in cells)
    return Quoted(experiment, dataset, place, heads, rows, marks)


def _value(cell: str) -> Value:
    number, _, error = cell.partition("±")
    return Value(float(number), float(error) if error else None)
