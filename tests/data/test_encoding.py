"""Rows to inputs: against plain float64 arithmetic, and blind to everything that does not train."""

from __future__ import annotations

import json
import statistics
from dataclasses import replace

import numpy as np
import pytest

from genie_dg.data.domains import DataError, DomainSet, TableColumns, TableDomain
from genie_dg.data.encoding import encoded, encoding_from, fit_encoding
from genie_dg.data.splits import splits

COLUMNS = TableColumns(("age", "dose", "same"), ("ward",), (("north", "south", "west"),), "site", "sick")


def table(name: str, count: int, seed: int, wards: int = 3) -> TableDomain:
    random = np.random.default_rng(seed)
    numbers = np.column_stack([random.normal(50, 20, count), random.normal(1e-3, 1e-5, count), np.ones(count)])
    numbers[::7, 0] = np.nan
    words = random.integers(-1, wards, (count, 1))
    return TableDomain(name, COLUMNS, numbers, words, random.integers(0, 2, count), np.arange(count) + 1)


def test_inputs_are_what_plain_arithmetic_gives() -> None:
    """One number at a time, with the statistics module."""
    first, second = table("a", 40, 0, wards=2), table("b", 30, 1, wards=2)
    rows = np.arange(5, 25), np.arange(30)
    encoding = fit_encoding([first, second], rows)
    training = [float(x) for t, some in zip((first, second), rows, strict=True) for x in t.numbers[some, 0]]
    there = [x for x in training if x == x]
    mean, std = statistics.fmean(there), statistics.pstdev(there)
    other = table("c", 20, 2)
    inputs = encoding.inputs(other)
    assert encoding.levels == (("north", "south"),)  # west is in no training row
    assert inputs.shape == (20, encoding.width, 1, 1) == (20, 5, 1, 1)
    for row in range(20):
        age, ward = float(other.numbers[row, 0]), int(other.words[row, 0])
        expected = 0.0 if age != age else (age - mean) / std
        assert float(inputs[row, 0]) == pytest.approx(expected, rel=1e-6, abs=1e-7)
        assert inputs[row, 2].item() == 0  # a column that does not vary
        assert inputs[row, 3:].flatten().tolist() == [float(ward == 0), float(ward == 1)]


def test_the_test_domain_and_held_back_rows_are_not_looked_at() -> None:
    tables = [table(name, 50, k) for k, name in enumerate("abc")]
    data = DomainSet("three", ("no", "yes"), tuple(tables))
    parts = splits(data, trial=0)
    _, before = encoded(data, (0, 1), parts)
    changed = [replace(one, numbers=one.numbers.copy(), words=one.words.copy()) for one in tables]
    changed[2].numbers[:] = 1e9
    for k in (0, 1):
        changed[k].numbers[parts[k].outside] = -1e9
    _, after = encoded(replace(data, domains=tuple(changed)), (0, 1), parts)
    assert before == after
    changed[0].numbers[parts[0].inside[0], 1] = 1e9
    assert encoded(replace(data, domains=tuple(changed)), (0, 1), parts)[1] != before


def test_columns_and_levels_are_found_by_name() -> None:
    encoding = fit_encoding([table("a", 40, 0)], [np.arange(40)])
    turned = TableColumns(("dose", "same", "age"), ("ward",), (("elsewhere", "west", "north"),))
    numbers, words = np.array([[1e-3, 1.0, 50.0]] * 3), np.array([[0], [1], [2]])
    other = TableDomain("b", turned, numbers, words, np.zeros(3, np.int64), np.arange(3) + 1)
    inputs = encoding.inputs(other)[:, :, 0, 0]
    assert inputs[0, 0] == pytest.approx((50.0 - encoding.mean[0]) / encoding.std[0], abs=1e-6)
    assert inputs[:, 3:].tolist() == [[0, 0, 0], [0, 0, 1], [1, 0, 0]]


def test_an_encoding_survives_json_to_the_bit() -> None:
    encoding = fit_encoding([table("a", 40, 0)], [np.arange(40)])
    assert encoding_from(json.loads(json.dumps(encoding.to_json()))) == encoding
    with pytest.raises(DataError, match="differ in length"):
        encoding_from({**encoding.to_json(), "mean": [1.0]})


def test_three_columns_are_not_taken_for_colours() -> None:
    """ImageNet's mean and deviation are for pictures."""
    from genie_dg.data.loaders import Evaluation

    data = DomainSet("one", ("no", "yes"), (table("a", 40, 0),))
    numbers_only = replace(
        data,
        domains=(replace(table("a", 40, 0), columns=TableColumns(COLUMNS.numbers), words=np.empty((40, 0))),),
    )
    seen, encoding = encoded(numbers_only, (0,), splits(numbers_only, 0))
    assert encoding is not None
    assert encoding.width == 3
    ((images, _),) = Evaluation(seen.domains[0])
    assert images.equal(seen.domains[0].images)  # type: ignore[attr-defined]
