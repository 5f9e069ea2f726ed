"""CSV and parquet files as frames, and a column of names as numbers with their names, sorted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from .domains import DataError, Labels


def parquet_files(path: Path) -> list[Path]:
    """A parquet file itself, or those of a folder or of its folder ``data``, in the order of their names."""
    if path.is_file():
        return [path] if path.suffix.lower() == ".parquet" else []
    inside = sorted(path.glob("*.parquet"))
    return inside or sorted((path / "data").glob("*.parquet"))


def table_name(path: Path) -> str:
    """What a table is called: its file without the ending, or its folder.

    >>> table_name(Path("wards/a.csv"))
    'a'
    """
    whole = path.resolve()
    return whole.name if whole.is_dir() else whole.stem


def read_frame(path: Path, columns: list[str] | None = None) -> pl.DataFrame:
    """All rows of a table: a CSV file, a parquet file, or the parquet files of a folder one after another.

    Args:
        path: the file or folder.
        columns: of parquet, those that are read; by default all.
    """
    try:
        if files := parquet_files(path):
            frame = pl.concat([pl.read_parquet(file, columns=columns, glob=False) for file in files])
        else:
            separator = "\t" if path.suffix.lower() == ".tsv" else ","
            frame = pl.read_csv(path, separator=separator, infer_schema_length=None, glob=False)
    except (OSError, pl.exceptions.PolarsError, UnicodeDecodeError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:160].rstrip(".")
        raise DataError(
            f"{path} cannot be read as a table ({reason}); give a UTF-8 CSV file with a line of names first, "
            "or parquet."
        ) from error
    if not len(frame):
        raise DataError(f"{path} has no row; give a table with at least five rows for each domain.")
    return frame


def parquet_kinds(path: Path) -> dict[str, pl.DataType]:
    """The columns of a parquet file, or of the first one of a folder, with their kinds; empty for a CSV."""
    files = parquet_files(path)
    try:
        return dict(pl.read_parquet_schema(files[0])) if files else {}
    except (OSError, pl.exceptions.PolarsError) as error:
        raise DataError(
            f"{files[0]} cannot be read as parquet ({type(error).__name__}); write it again."
        ) from error


def class_names(path: Path) -> dict[str, list[str]]:
    """By column, the names behind its numbers, where Hugging Face's ``datasets`` has written them."""
    text = pl.read_parquet_metadata(parquet_files(path)[0]).get("huggingface", "{}")
    try:
        features = json.loads(text)["info"]["features"]
        return {name: list(map(str, one["names"])) for name, one in features.items() if "names" in one}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}  # a description in another form is no reason to refuse the rows


def codes_of(values: pl.Series, where: object, names: Sequence[str] = ()) -> tuple[Labels, tuple[str, ...]]:
    """A column of domains or labels as numbers from 0, and the name of each.

    Numbers are put in order by value, all else by name.

    Args:
        values: names, whole numbers, or true and false.
        where: the file, for messages.
        names: where the values are places in this list, the list, all of which stays.

    >>> codes_of(pl.Series("ward", [10, 9, 10]), "a.csv")
    (array([1, 0, 1]), ('9', '10'))
    """
    column = f"the column {values.name!r} of {where}"
    if missing := values.null_count():
        raise DataError(f"{missing:,} rows have no value in {column}; fill them or remove these rows.")
    if names:
        if not values.dtype.is_integer() or int(values.min()) < 0 or int(values.max()) >= len(names):  # type: ignore[arg-type]
            raise DataError(f"{column} goes beyond the {len(names)} names that the file gives; write it again.")
        return values.cast(pl.Int64).to_numpy().astype(np.int64), tuple(names)
    if values.dtype.is_float() or values.dtype.is_decimal():
        whole = values.cast(pl.Float64)
        if not bool((whole.is_finite() & (whole == whole.round())).all()):
            raise DataError(
                f"{column} has fractions, such as {values[0]}; domains and classes must be names or whole "
                "numbers, so sort the values into a few bins first."
            )
        values = whole.cast(pl.Int64)
    values = values.cast(pl.String) if not values.dtype.is_integer() else values
    distinct = values.unique().sort()
    codes = np.searchsorted(distinct.to_numpy(), values.to_numpy()).astype(np.int64)
    return codes, tuple(str(value) for value in distinct.to_list())
