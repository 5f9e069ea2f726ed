"""Rows of other tables for a model of a table."""

from __future__ import annotations

from pathlib import Path

import pytest

from genie_dg.check import InputError
from genie_dg.data.columns import Columns
from genie_dg.data.domains import DataError, TableDomain
from genie_dg.data.encoding import Encoding
from genie_dg.inference.rows import inputs_of, open_rows

ENCODING = Encoding(("age",), (50.0,), (10.0,), ("sex",), (("f", "m"),), "ward", "outcome")
"""Inputs are (age - 50) / 10, is f, is m."""


def test_every_row_is_named_by_file_and_number(tmp_path: Path) -> None:
    first, second = tmp_path / "a.csv", tmp_path / "b.csv"
    first.write_text("more,sex,age\nx,m,60\ny,other,\n")
    second.write_text("age,sex\n40,f\n")
    inputs = inputs_of([first, second], ENCODING)
    shown = {name: row.flatten().tolist() for name, row in inputs.items()}
    assert shown == {f"{first}:1": [1, 0, 1], f"{first}:2": [0, 0, 0], f"{second}:1": [-1, 1, 0]}


def test_labelled_rows_keep_to_the_columns_of_the_model(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("site,outcome,sex,age,new\nb,well,f,1,2\na,sick,m,3,4\n")
    data = open_rows(path, ENCODING, Columns(domain="site"))
    assert [domain.name for domain in data.domains] == ["a", "b"]
    assert isinstance(data.domains[0], TableDomain)
    assert (data.domains[0].columns.numbers, data.domains[0].columns.words) == (("age",), ("sex",))
    with pytest.raises(DataError, match="--domain-column 'ward'"):
        open_rows(path, ENCODING, Columns())
    path.write_text("ward,outcome,age\nb,well,1\n")
    with pytest.raises(DataError, match="has no column 'sex', which the model was trained with"):
        open_rows(path, ENCODING, Columns())
    with pytest.raises(InputError, match="is not there"):
        open_rows(tmp_path / "gone.csv", ENCODING, Columns())
