"""A table at a glance, by hand-computed numbers."""

from __future__ import annotations

import warnings
from pathlib import Path

from genie_dg.data.table_summary import summarise
from genie_dg.data.tables import open_table


def test_a_summary_counts_and_measures_the_shift(tmp_path: Path) -> None:
    lines = ["domain,label,x,same,sex"]
    lines += [f"a,{k % 2},0,1,f" for k in range(6)] + [
        f"b,0,{2 if k else ''},1,{'m' * (k % 2)}" for k in range(4)
    ]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = open_table(tmp_path / "t.csv")
    found = summarise(data)
    assert found.domains == [["domain", "rows", "0", "1"], ["a", "6", "3", "3"], ["b", "4", "4", "0"]]
    heading, x, same, sex = found.columns
    assert heading == ["column", "kind", "missing", "mean", "deviation", "a", "b"]
    # six zeros and three twos: mean 2/3, deviation sqrt(12/9 - 4/9) = 0.9428
    assert x == ["x", "number", "1", "0.6667", "0.9428", "-0.71", "+1.41"]
    assert same == ["same", "number", "0", "1", "0", "-", "-"]
    assert sex == ["sex", "text", "2", "2 levels", "-", "1 levels", "1 levels"]
    assert found.problems == {
        "few rows": ["b: 4, expected 5 or more"],
        "missing class": ["b: 1"],
        "missing values": ["x: 1 of 10"],
        "constant column": ["same"],
    }
    assert not found.good
    assert summarise(data, most=1).notes == ("first 1 of 3 columns",)
