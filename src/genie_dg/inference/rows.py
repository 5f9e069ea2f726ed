"""Rows of a table for a model that was trained on one: with labels to evaluate, without to predict."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from genie_dg.check import InputError
from genie_dg.data.columns import Columns
from genie_dg.data.domains import DomainSet
from genie_dg.data.encoding import Encoding
from genie_dg.data.tables import open_table, read_rows


def open_rows(path: Path, encoding: Encoding, columns: Columns) -> DomainSet:
    """A labelled table for a model; its columns of features must be there, others are left alone.

    Args:
        path: a CSV or parquet file.
        encoding: of the model.
        columns: of domain and label where they have other names than in training.
    """
    if not path.exists():
        raise InputError(
            f"{path} is not there; the model was trained on a table, so name a CSV or parquet file."
        )
    domain, label = columns.domain or encoding.domain, columns.label or encoding.label
    return open_table(path, Columns(domain, label), like=encoding.columns)


def inputs_of(files: Sequence[str | Path], encoding: Encoding) -> dict[str, Tensor]:
    """What a model sees of each row of some tables, by ``file:row``; rows count from 1, without the header."""
    inputs = {}
    for file in files:
        table = read_rows(file, encoding.columns)
        seen = encoding.inputs(table)
        inputs.update({f"{file}:{row}": seen[k] for k, row in enumerate(table.rows)})
    return inputs
