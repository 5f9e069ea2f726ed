"""The numbers of the paper's tables, exactly as printed: quoted, never computed.

"One-Step Generalization Ratio Guided Optimization for Domain Generalization", ICML 2025. The folder
``published`` has a file for each table, ``table_<number>.csv``: a line for each row, accuracies in percent,
times in seconds, and a column ``<name> error`` where the table prints errors. The mark of a row is the paper's
own: ``*`` was taken by the paper from Zhang et al. (FAD, ICCV 2023), ``†`` from the original literature and
DomainBed. What is spelled otherwise than printed: "(ours)" is left out, YOGI is Yogi, I-Mixup is Mixup,
Mixstyle is MixStyle; ``SGD@5000`` is SGD after 5,000 iterations.

``tables.csv`` says which experiment and data set each table is about, ``claims.csv`` what the paper claims (for
`ledger`), and ``inconsistencies.csv`` where it contradicts itself or its authors' logs; nothing is corrected.
Tables 14 to 16 also print 150000 iterations where Table 3 and the times say 15,000: their rows are called
``@15000``.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "published"
PRINTED = {
    "adam": "Adam", "adamw": "AdamW", "sgd": "SGD", "yogi": "Yogi", "adabelief": "AdaBelief",
    "adahessian": "AdaHessian", "sam": "SAM", "gam": "GAM", "fad": "FAD", "genie": "GENIE",
}  # fmt: skip
"""What the paper calls an optimizer."""


@dataclass(frozen=True)
class PublishedNumber:
    """A printed number; ``error`` is ``None`` where none is printed."""

    value: float
    error: float | None = None


@dataclass(frozen=True)
class PublishedTable:
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
    rows: dict[str, tuple[PublishedNumber, ...]]
    marks: dict[str, str]

    def cell(self, row: str, column: str) -> PublishedNumber:
        """One number."""
        return self.rows[row][self.columns.index(column)]

    def cells(self) -> Iterator[tuple[str, str, PublishedNumber]]:
        """Every number with its row and column."""
        for row, values in self.rows.items():
            for column, value in zip(self.columns, values, strict=True):
                yield row, column, value


def table_from(text: str, experiment: str, dataset: str, place: str) -> PublishedTable:
    """A table from the text of its file.

    >>> text = "row,mark,Art,Art error,Avg\\nAdam,*,88.0,1.2,84.3\\n"
    >>> table = table_from(text, "optimizers", "PACS", "Table 0")
    >>> table.cell("Adam", "Art"), table.columns, table.marks
    (PublishedNumber(value=88.0, error=1.2), ('Art', 'Avg'), {'Adam': '*'})
    """
    header, *lines = csv.reader(text.splitlines())
    columns = tuple(name for name in header[2:] if not name.endswith(" error"))
    rows, marks = {}, {}
    for line in lines:
        cells = dict(zip(header, line, strict=True))
        errors = {column: cells.get(f"{column} error") or None for column in columns}
        pairs = [(cells[column], error) for column, error in errors.items()]
        rows[line[0]] = tuple(PublishedNumber(float(x), None if e is None else float(e)) for x, e in pairs)
        if line[1]:
            marks[line[0]] = line[1]
    return PublishedTable(experiment, dataset, place, columns, rows, marks)


def lines_of(name: str) -> list[dict[str, Any]]:
    """The lines of one of the files, by column."""
    return list(csv.DictReader((FOLDER / name).read_text(encoding="utf-8").splitlines()))


def _tables() -> Iterator[PublishedTable]:
    for line in lines_of("tables.csv"):
        text = (FOLDER / f"table_{int(line['table']):02d}.csv").read_text(encoding="utf-8")
        place = f"Table {line['table']} ({line['label']})"
        yield table_from(text, line["experiment"], line["dataset"], place)


PUBLISHED: dict[tuple[str, str], PublishedTable] = {(t.experiment, t.dataset): t for t in _tables()}
"""All tables of results by experiment and data set; that of a main table is empty, but for the ablation."""
