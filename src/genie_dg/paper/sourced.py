"""Tables whose every number says where it comes from: measured here, or quoted from the paper.

A table is a title and its numbers; `markdown` turns them into rows and columns, `numbers_csv` into one line for
each. A column holds numbers of one origin, so no cell mixes two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields

from genie_dg.results.render import csv_text, escape_markdown, markdown_table
from genie_dg.results.tables import Cell

from .published import PublishedTable

MEASURED, QUOTED, COMPUTED = "measured here", "quoted", "computed from quoted"
"""The origins."""


@dataclass(frozen=True)
class SourcedNumber:
    """One number of a table.

    Args:
        row, column: where it stands.
        origin: `MEASURED`, `QUOTED` or `COMPUTED`.
        value: in percent, seconds or steps; ``None`` when missing.
        error: the standard error over trials.
        place: of a quoted number, in the paper; of a measured one, the data set.
        trials, draws: how many a measured number is of.
        note: why it is missing.
        digits: after the point, when shown.
    """

    row: str
    column: str
    origin: str
    value: float | None
    error: float | None = None
    place: str = ""
    trials: int = 0
    draws: int = 0
    note: str = ""
    digits: int = 1

    @property
    def text(self) -> str:
        """As it is shown.

        >>> SourcedNumber("GENIE", "PACS", MEASURED, 87.8, 0.5).text
        '87.8 ± 0.5'
        """
        if self.value is None:
            return "X"
        error = "" if self.error is None else f" ± {self.error:.{self.digits}f}"
        return f"{self.value:.{self.digits}f}{error}"


Numbers = list[SourcedNumber]
"""All numbers of a table."""


def measured(row: str, column: str, cell: Cell, dataset: str) -> SourcedNumber:
    """A selected accuracy in percent; one trial has no error."""
    value = None if cell.mean is None else 100 * cell.mean
    error = None if cell.error is None else 100 * cell.error
    note = cell.note if cell.mean is None else ""
    return SourcedNumber(row, column, MEASURED, value, error, dataset, cell.trials, cell.draws[1], note)


def quoted(table: PublishedTable, prefix: str = "", drop: str = "") -> Numbers:
    """All numbers of a printed table, with ``prefix`` before columns and without ``drop`` before names."""
    return [
        SourcedNumber(
            row.removeprefix(drop), prefix + column, QUOTED, cell.value, cell.error, table.place,
            digits=0 if column.startswith("Time") else 1,
        )
        for row, column, cell in table.cells()
    ]  # fmt: skip


def markdown(title: str, numbers: Numbers) -> str:
    """Numbers as a table; a column's head names its origin, "-" stands where there is no such number."""
    heads = list(dict.fromkeys((number.column, number.origin) for number in numbers))
    rows = list(dict.fromkeys(number.row for number in numbers))
    texts = {(number.row, number.column, number.origin): number.text for number in numbers}
    header = ["row", *(f"{escape_markdown(column)} ({origin})" for column, origin in heads)]
    lines = [[escape_markdown(row), *(texts.get((row, *head), "-") for head in heads)] for row in rows]
    notes = dict.fromkeys(f"{number.row}, {number.column}: {number.note}" for number in numbers if number.note)
    blocks = [f"### {escape_markdown(title)}", markdown_table(header, lines, 1)]
    return "\n\n".join([*blocks, *(f"X {escape_markdown(note)}." for note in notes)]) + "\n"


def numbers_csv(tables: Sequence[tuple[str, Numbers]]) -> str:
    """One line for each number, with the title of its table first."""
    header = ["table", *(field.name for field in fields(SourcedNumber))]
    return csv_text(header, ([title, *astuple(number)] for title, numbers in tables for number in numbers))
