"""Tables whose every number says where it comes from: measured here, quoted from the paper, or logged.

A table is a title and its numbers; `markdown` turns them into rows and columns, `numbers_csv` into one line for
each. A column holds numbers of one origin, so no cell mixes two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields, replace

from genie_dg.results.render import csv_text, escape_markdown, markdown_table
from genie_dg.results.tables import Cell

from .logged import committed
from .published import PUBLISHED, PublishedTable

MEASURED, QUOTED, COMPUTED, LOGGED = "measured here", "quoted", "computed from quoted", "logged"
"""The origins."""


@dataclass(frozen=True)
class SourcedNumber:
    """One number of a table.

    Args:
        row, column: where it stands.
        origin: `MEASURED`, `QUOTED`, `COMPUTED` or `LOGGED`.
        value: in percent, seconds or steps; ``None`` when missing.
        error: the standard error over trials.
        place: of a quoted number, in the paper; of a logged one, the repository; of a measured one, the set.
        trials, draws: how many a measured or logged number is of.
        note: why it is missing.
        digits: after the point, when shown.
        runs: how many are behind a logged number.
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
    runs: int = 0

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
Tables = list[tuple[str, Numbers]]
"""Titles and numbers."""


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


def logged(experiment: str, dataset: str, prefix: str = "", drop: str = "") -> Numbers:
    """What the authors' logs say for the table of a data set by domain, in the order of its columns.

    Args:
        experiment: of the paper.
        dataset: of the table.
        prefix: before columns.
        drop: what is left out before names of rows.
    """
    columns = (*PUBLISHED["optimizers", dataset].columns[:-1], "Avg")
    found = sorted(committed().table(experiment, dataset), key=lambda one: columns.index(one.column))
    return [
        SourcedNumber(
            one.row.removeprefix(drop), prefix + one.column, LOGGED, one.value, None, committed().place,
            one.trials, one.draws, runs=one.runs,
        )
        for one in found
    ]  # fmt: skip


def logged_averages(experiment: str, drop: str = "") -> Numbers:
    """What the authors' logs say for a main table, where data sets are the columns.

    >>> [(x.row, x.column, x.text, x.runs) for x in logged_averages("integration") if x.column == "VLCS"]
    [('CORAL+GENIE', 'VLCS', '81.5', 4), ('RSC+GENIE', 'VLCS', '81.2', 4)]
    """
    return [
        replace(number, column=dataset)
        for dataset in PUBLISHED[experiment, ""].columns
        if dataset in committed().datasets(experiment)
        for number in logged(experiment, dataset, drop=drop)
        if number.column == "Avg"
    ]


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
