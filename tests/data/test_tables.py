"""CSV and parquet files as domains of rows."""

from __future__ import annotations

import warnings
from datetime import date
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from genie_dg.check import InputError
from genie_dg.data.columns import Columns
from genie_dg.data.domains import DataError, TableDomain
from genie_dg.data.registry import open_data
from genie_dg.data.table_files import codes_of
from genie_dg.data.tables import open_table, read_rows, table_problems

TEXT = """ward,outcome,age,sex,steps,smokes
10,sick,3.5,f,NA,true
9,well,,m,7,false
10,well,2,,8,
9,sick,1,m,?,true
"""


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    (tmp_path / "wards.csv").write_text(TEXT)
    return tmp_path / "wards.csv"


WARDS = Columns("ward", "outcome")


def test_a_csv_becomes_sorted_domains_of_rows_in_order(csv: Path) -> None:
    data = open_data(csv, columns=WARDS)
    assert (data.name, data.classes) == ("wards", ("sick", "well"))
    assert [domain.name for domain in data.domains] == ["9", "10"]  # by value, not by text
    nine, ten = data.domains
    assert isinstance(nine, TableDomain)
    assert isinstance(ten, TableDomain)
    assert nine.columns.numbers == ("age", "steps", "smokes")
    assert (nine.columns.words, nine.columns.levels) == (("sex",), (("f", "m"),))
    nan = np.nan
    np.testing.assert_array_equal(nine.numbers, [[nan, 7, 0], [1, nan, 1]])
    np.testing.assert_array_equal(ten.numbers, [[3.5, nan, 1], [2, 8, nan]])
    assert (nine.words.tolist(), ten.words.tolist()) == ([[1], [1]], [[0], [-1]])
    assert (nine.labels.tolist(), ten.labels.tolist()) == ([1, 0], [0, 1])
    assert nine.where(1) == "row 4 (9)"


def test_parquet_gives_the_same_set(csv: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    pl.read_csv(csv, null_values=["NA", "?"]).write_parquet(tmp_path / "other" / "wards.parquet")
    first, second = (
        open_data(csv, columns=WARDS),
        open_data(tmp_path / "other" / "wards.parquet", columns=WARDS),
    )
    assert first.digest() == second.digest()


def test_the_digest_sees_values_columns_and_domains(csv: Path) -> None:
    digests = [open_data(csv, columns=WARDS).digest()]
    for old, new in (("3.5", "3.6"), ("age", "days"), ("10,", "11,"), (",f,", ",d,")):
        csv.write_text(TEXT.replace(old, new))
        digests.append(open_data(csv, columns=WARDS).digest())
    csv.write_text(TEXT)
    digests.append(open_data(csv, columns=Columns("ward", "outcome", ignored=("sex",))).digest())
    assert len(set(digests)) == len(digests)


def test_columns_are_guessed_by_their_usual_names(csv: Path) -> None:
    csv.write_text(TEXT.replace("ward", "Domain").replace("outcome", "label"))
    assert [domain.name for domain in open_data(csv).domains] == ["9", "10"]
    csv.write_text(TEXT.replace("ward", "domain").replace("outcome", "label").replace("age", "target"))
    with pytest.raises(DataError, match="label and target could both be it"):
        open_data(csv)


def test_a_list_of_pictures_is_still_a_list(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text("path,label,domain\na.png,cat,ink\n")
    assert open_data(tmp_path / "list.csv").in_files


@pytest.mark.parametrize(
    ("text", "columns", "said"),
    [
        (TEXT, Columns("wrad", "outcome"), "has the columns ward, outcome.*did you mean 'ward'"),
        (TEXT, Columns("ward"), "which column is the label .*--label-column NAME"),
        (TEXT, Columns("ward", "ward"), "for domain and label"),
        (TEXT, Columns("ward", "age"), "1 rows have no value in the column 'age'"),
        (TEXT, Columns("ward", "outcome", ignored=("agee",)), "--ignore-column 'agee'.*did you mean 'age'"),
        (TEXT.replace("sick", "well"), WARDS, "one class, 'well'"),
        (TEXT.replace(",3.5,", ",inf,"), WARDS, "Row 1 of .* has age = inf"),
        ("domain,label\na,b\na,c\n", Columns(), "no column besides domain and label"),
        ("domain,label,x\n", Columns(), "has no row"),
        ("domain,label,x\na,0.5,1\nb,1.5,2\n", Columns(), "has fractions, such as 0.5"),
        ("a,a\n1,2,3\n", WARDS, "cannot be read as a table"),
        ("", WARDS, "cannot be read as a table"),
    ],
)
def test_what_is_not_a_table_is_refused_in_a_sentence(
    text: str, columns: Columns, said: str, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(DataError, match=said) as caught:
        open_data(tmp_path / "a.csv", columns=columns)
    assert str(caught.value)[-1] in ".?"


def test_a_kind_that_is_neither_number_nor_text_is_refused(tmp_path: Path) -> None:
    frame = pl.DataFrame({"domain": ["a", "b"], "label": [0, 1], "day": [date(2020, 1, 1)] * 2})
    frame.write_parquet(tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"'day' .* is of the kind Date.*--ignore-column day"):
        open_table(tmp_path / "a.parquet")


def test_columns_of_what_is_not_a_table_are_refused(csv: Path) -> None:
    with pytest.raises(InputError, match="has no column of pictures"):
        open_data(csv, columns=Columns("ward", "outcome", "age"))
    with pytest.raises(InputError, match="digits, which is not a table"):
        open_data("digits", columns=Columns("ward"))


def test_a_class_that_one_domain_lacks_keeps_its_number(csv: Path) -> None:
    csv.write_text(TEXT.replace("10,well", "10,sick"))
    with pytest.warns(UserWarning, match=r"domain 10 .* has no sample of well"):
        data = open_data(csv, columns=WARDS)
    assert data.domains[1].labels.tolist() == [0, 0]


def test_codes_are_in_order_by_value() -> None:
    for values, names in (
        ([3, 20, 3], ("3", "20")),
        (["b", "a", "b"], ("a", "b")),
        ([2.0, 1.0, 2.0], ("1", "2")),
        ([True, False, True], ("false", "true")),
    ):
        codes, found = codes_of(pl.Series("x", values), "a.csv")
        assert found == names
        assert codes.tolist() in ([1, 0, 1], [0, 1, 0])
        assert [found[k] for k in codes] == [str(v).lower().removesuffix(".0") for v in values]
    codes, found = codes_of(pl.Series("x", [2, 0]), "a.csv", ["cat", "cow", "dog"])
    assert (codes.tolist(), found) == ([2, 0], ("cat", "cow", "dog"))


def test_rows_without_labels_are_read_with_the_kinds_of_the_model(csv: Path, tmp_path: Path) -> None:
    data = open_data(csv, columns=WARDS)
    assert isinstance(data.domains[0], TableDomain)
    kinds = data.domains[0].columns
    (tmp_path / "new.csv").write_text("sex,smokes,steps,age,more\n1,1,NA,3,x\n")  # sex was text, steps a number
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows = read_rows(tmp_path / "new.csv", kinds)
    assert rows.columns.levels == (("1",),)
    np.testing.assert_array_equal(rows.numbers, [[3, np.nan, 1]])
    (tmp_path / "new.csv").write_text("sex,smokes,steps,age\nf,1,many,3\n")
    with pytest.raises(DataError, match=r"'steps' of .* is not of numbers"):
        read_rows(tmp_path / "new.csv", kinds)


def test_what_is_wrong_with_a_table_is_named(tmp_path: Path) -> None:
    lines = [
        "domain,label,x,same",
        *(f"a,{k % 2},0,1" for k in range(6)),
        *(f"b,0,{k or ''},1" for k in range(4)),
    ]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    with pytest.warns(UserWarning, match="has no sample of 1"):
        data = open_table(tmp_path / "t.csv")
    assert table_problems(data) == {
        "few rows": ["b: 4, expected 5 or more"],
        "missing class": ["b: 1"],
        "missing values": ["x: 1 of 10"],
        "constant column": ["same"],
    }
