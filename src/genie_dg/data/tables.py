"""Tables of numbers: a CSV or parquet file with a column for the domain and one for the label.

Domains and classes are the distinct values of their columns, sorted; rows keep the order of the file. Every
other column is a feature: numbers, true and false as they are, text as categories. An empty cell is a missing
value; in a column whose other values are numbers, NA, N/A, null, none, nan, - and ? are, too.
What is computed from the rows that train is in `genie_dg.data.encoding`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from .columns import DOMAIN, LABEL, Columns, check_column, chosen_column
from .domains import DataError, DomainSet, TableColumns, TableDomain
from .image_folders import warn_of_gaps
from .table_files import codes_of, read_frame, table_name

_FEWEST = 5
"""Rows of a domain at least: a fifth is held back."""
_MISSING = ("", "na", "n/a", "null", "none", "nan", "-", "?")
"""Text that stands for a missing number, in any case."""


def open_table(
    path: str | Path,
    columns: Columns = Columns(),  # noqa: B008  # frozen
    name: str | None = None,
    like: TableColumns | None = None,
) -> DomainSet:
    """The domains of a table of numbers.

    Args:
        path: a CSV or parquet file, or a folder of parquet files.
        columns: which column says what.
        name: what tables of results call the set; by default the name of the file.
        like: the features of a model, which alone are taken, with their kinds.
    """
    where, frame = Path(path), read_frame(Path(path))
    domain = chosen_column("domain", columns.domain, frame.columns, DOMAIN, where)
    label = chosen_column("label", columns.label, frame.columns, LABEL, where)
    if domain == label:
        raise DataError(f"{where} has one column, {domain!r}, for domain and label; name two different ones.")
    for one in columns.ignored:
        check_column(one, "--ignore-column", frame.columns, where)
    of_domain, domains = codes_of(frame[domain], where)
    of_class, classes = codes_of(frame[label], where)
    if len(classes) < 2 and like is None:
        raise DataError(f"The column {label!r} of {where} has one class, {classes[0]!r}; expected two or more.")
    features = frame.drop(domain, label, *columns.ignored)
    kinds, numbers, words = features_of(features if like is None else _wanted(frame, where, like), where, like)
    kinds = TableColumns(kinds.numbers, kinds.words, kinds.levels, domain, label)
    tables = []
    for k, one in enumerate(domains):
        rows = np.flatnonzero(of_domain == k)
        tables.append(TableDomain(one, kinds, numbers[rows], words[rows], of_class[rows], rows + 1))
    data = DomainSet(name or table_name(where), classes, tuple(tables))
    if like is None:
        warn_of_gaps(data, where)
    return data


def read_rows(path: str | Path, kinds: TableColumns) -> TableDomain:
    """The features of a table that need not say domain and label, read as a model was trained.

    Args:
        path: a CSV or parquet file.
        kinds: which columns are wanted, and which of them are text; others are left alone.
    """
    frame = _wanted(read_frame(Path(path)), path, kinds)
    columns, numbers, words = features_of(frame, path, kinds)
    rows = np.arange(len(frame))
    return TableDomain(Path(path).stem, columns, numbers, words, np.zeros(len(rows), np.int64), rows + 1)


def _wanted(frame: pl.DataFrame, where: object, kinds: TableColumns) -> pl.DataFrame:
    """The columns that a model was trained with."""
    wanted = (*kinds.numbers, *kinds.words)
    for one in wanted:
        if one not in frame.columns:
            raise DataError(
                f"{where} has no column {one!r}, which the model was trained with; add it, empty if need be."
            )
    return frame.select(wanted)


def features_of(
    frame: pl.DataFrame, where: object, like: TableColumns | None = None
) -> tuple[TableColumns, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The columns of a frame as numbers and as levels; with ``like`` of the kinds that are known."""
    numbers: list[pl.Series] = []
    words: list[pl.Series] = []
    for series in frame:
        text = _is_text(series, where) if like is None else series.name in like.words
        (words if text else numbers).append(series)
    if not numbers and not words:
        raise DataError(f"{where} has no column besides domain and label; add at least one feature.")
    as_text = [series.cast(pl.String) for series in words]
    levels = tuple(tuple(series.drop_nulls().unique().sort().to_list()) for series in as_text)
    kinds = TableColumns(tuple(s.name for s in numbers), tuple(s.name for s in words), levels)
    values = [_as_numbers(series, where) for series in numbers]
    places = [_as_levels(series, every) for series, every in zip(as_text, levels, strict=True)]
    return kinds, _stacked(values, len(frame), np.float64), _stacked(places, len(frame), np.int64)


def _stacked(columns: Sequence[np.ndarray[Any, Any]], rows: int, kind: type) -> np.ndarray[Any, Any]:
    return np.stack(columns, axis=1) if columns else np.empty((rows, 0), dtype=kind)


def _is_text(series: pl.Series, where: object) -> bool:
    """Whether a column is of categories; one that is neither text nor numbers is refused."""
    kind = series.dtype
    if kind.is_numeric() or kind == pl.Boolean or kind == pl.Null:
        return False
    if kind in (pl.Categorical, pl.Enum):
        return True
    if kind == pl.String:
        return bool(series.str.to_lowercase().is_in(_MISSING).all()) or not _all_numbers(series)
    raise DataError(
        f"The column {series.name!r} of {where} is of the kind {kind}; expected numbers or text, so convert "
        f"it, or leave it out with --ignore-column {series.name}."
    )


def _all_numbers(series: pl.Series) -> bool:
    cleaned = _without_missing(series)
    return cleaned.cast(pl.Float64, strict=False).null_count() == cleaned.null_count()


def _without_missing(series: pl.Series) -> pl.Series:
    return series.set(series.str.strip_chars().str.to_lowercase().is_in(_MISSING), None).str.strip_chars()


def _as_numbers(series: pl.Series, where: object) -> np.ndarray[Any, Any]:
    """Float64, NaN where a value is missing."""
    series = _without_missing(series) if series.dtype == pl.String else series
    try:
        values: np.ndarray[Any, Any] = series.cast(pl.Float64).fill_null(np.nan).to_numpy().copy()
    except pl.exceptions.PolarsError as error:
        raise DataError(
            f"The column {series.name!r} of {where} is not of numbers, as the model was trained with; fix it."
        ) from error
    if np.isinf(values).any():
        row = int(np.flatnonzero(np.isinf(values))[0]) + 1
        raise DataError(
            f"Row {row} of {where} has {series.name} = {values[row - 1]}; expected finite numbers, so fix it "
            "or leave the cell empty."
        )
    return values


def _as_levels(series: pl.Series, levels: Sequence[str]) -> np.ndarray[Any, Any]:
    """The place of each value among the levels, -1 where it is missing."""
    if not levels:
        return np.full(len(series), -1, dtype=np.int64)
    places = np.searchsorted(np.array(levels, dtype=object), series.fill_null(levels[0]).to_numpy())
    return np.where(series.is_null().to_numpy(), -1, places).astype(np.int64)


def table_problems(data: DomainSet) -> dict[str, list[str]]:
    """What is wrong with a table, by kind; "few rows" cannot be trained on."""
    problems: dict[str, list[str]] = defaultdict(list)
    tables = [domain for domain in data.domains if isinstance(domain, TableDomain)]
    kinds = tables[0].columns
    for table in tables:
        if len(table) < _FEWEST:
            problems["few rows"].append(f"{table.name}: {len(table)}, expected {_FEWEST} or more")
        for k in set(range(len(data.classes))) - set(table.labels.tolist()):
            problems["missing class"].append(f"{table.name}: {data.classes[k]}")
    numbers = np.concatenate([table.numbers for table in tables])
    for name, values in zip(kinds.numbers, numbers.T, strict=True):
        missing = np.isnan(values)
        if len(np.unique(values[~missing])) < 2:
            problems["constant column"].append(name)
        elif missing.any():
            problems["missing values"].append(f"{name}: {missing.sum():,} of {len(values):,}")
    for name, levels in zip(kinds.words, kinds.levels, strict=True):
        if len(levels) > max(_FEWEST, len(data) // 2):
            problems["almost as many levels as rows"].append(name)
    return dict(problems)
