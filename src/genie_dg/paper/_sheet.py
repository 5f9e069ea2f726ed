"""A table whose every number says where it comes from: measured here, or quoted from the paper.

The numbers are a list of entries; `markdown` turns it into rows and columns, `csv_text` into one line for each.
A column holds numbers of one origin, so no cell mixes two.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields

from genie_dg.results.formats import escape_markdown

from ._quoted import Quoted

MEASURED, QUOTED, COMPUTED = "measured here", "quoted", "computed from quoted"
"""The origins."""


@dataclass(frozen=True)
class Entry:
    """One number.

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

        >>> Entry("GENIE", "PACS", QUOTED, 87.8).text, Entry("GENIE", "PACS", MEASURED, None).text
        ('87.8', 'X')
        """
        if self.value is None:
            return "X"
        error = "" if self.error is None else f" ± {self.error:.{self.digits}f}"
        return f"{self.value:.{self.digits}f}{error}"


def quotes(table: Quoted, prefix: str = "", drop: str = "") -> list[Entry]:
    """All numbers of a printed table, with ``prefix`` before columns and without ``drop`` before names."""
    return [
        Entry(
            row.removeprefix(drop),
            prefix + column,
            QUOTED,
            cell.value,
            cell.error,
            table.place,
            digits=0 if column.startswith("Time") else 1,
        )
        for row, column, cell in table.cells()
    ]


def markdown(title: str, entries: Sequence[Entry], first: str = "row") -> str:
    """Entries as a table; a column's head tells its origin, "-" stands where there is no such number."""
    heads = list(dict.fromkeys((entry.column, entry.origin) for entry in entries))
    rows = list(dict.fromkeys(entry.row for entry in entries))
    found = {(entry.row, entry.column, entry.origin): entry.text for entry in entries}
    lines = [f"### {escape_markdown(title)}", ""]
    lines.append(
        "| " + " | ".join([first, *(f"{escape_markdown(c)} ({origin})" for c, origin in heads)]) + " |"
    )
    lines.append("|---|" + "---:|" * len(heads))
    for row in rows:
        cells = [found.get((row, *head), "-") for head in heads]
        lines.append("| " + " | ".join([escape_markdown(row), *cells]) + " |")
    for note in dict.fromkeys(f"{e.row}, {e.column}: {e.note}" for e in entries if e.note):
        lines += ["", f"X {escape_markdown(note)}."]
    return "\n".join(lines) + "\n"


def csv_text(sheets: Sequence[tuple[str, Sequence[Entry]]]) -> str:
    """One line for each number, with the title of its table first."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["table", *(field.name for field in fields(Entry))])
    for title, entries in sheets:
        for entry in entries:
            writer.writerow([title, *("" if x is None else x for x in astuple(entry))])
    return text.getvalue()
