"""The records of a run: their means, their lines, and what is none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genie_dg.check import InputError
from genie_dg.runs.record import Record, decode_record, record_from

LINE = {
    "step": 3,
    "epoch": 0.5,
    "loss": 1.0,
    "validation_loss": None,
    "in_acc": [0.5, 0.25],
    "out_acc": [0.0, 1.0],
}


def test_a_record_knows_its_means() -> None:
    record = record_from({**LINE, "in_acc": [0.5, 0.25, 1.0], "out_acc": [0.0, 0.5, 0.75]}, 3)
    assert record.validation([1]) == 0.375
    assert record.validation([0, 1]) == 0.75
    assert record.test([1]) == 0.25
    assert record.test([0, 2]) == 0.75


@given(
    st.integers(0, 2**53 - 1),
    st.none() | st.floats(allow_nan=False, allow_infinity=False),
    st.lists(st.floats(0, 1), min_size=2, max_size=5),
    st.booleans(),
)
def test_a_record_comes_back_from_its_line(
    step: int, loss: float | None, accuracies: list[float], swad: bool
) -> None:
    record = Record(step, loss, loss, None, tuple(accuracies), tuple(reversed(accuracies)), swad)
    text = json.dumps(record.to_json())
    assert record_from(json.loads(text), len(accuracies)) == decode_record(text) == record
    assert ("swad" in record.to_json()) == swad


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"step": None}, r"Expected `int`, got `null` - at `\$\.step`"),
        ({"step": 2**53}, "step"),
        ({"step": 1.0}, "step"),
        ({"step": True}, "step"),
        ({"loss": "1"}, r"Expected `float \| null`, got `str` - at `\$\.loss`"),
        ({"loss": True}, "loss"),
        ({"validation_loss": 10**400}, "validation_loss"),
        ({"in_acc": None}, "in_acc"),
        ({"in_acc": [0.5]}, r"^got 1 accuracies in in_acc; expected 2"),
        ({"in_acc": "ab"}, "in_acc"),
        ({"out_acc": [0.5, 1.5]}, r"Expected `float` <= 1\.0 - at `\$\.out_acc\[1\]`"),
        ({"out_acc": [0.5, None]}, "out_acc"),
        ({"out_acc": [0.5, float("nan")]}, "out_acc"),
    ],
)
def test_what_is_not_a_record(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        record_from({**LINE, **changes}, 2)


def test_losses_that_are_not_finite_are_kept_where_a_run_goes_on() -> None:
    record = record_from({**LINE, "loss": float("inf"), "validation_loss": float("nan")}, 2)
    assert record.loss == float("inf")
    assert str(record.validation_loss) == "nan"


def test_accuracies_that_nothing_reads_may_be_missing() -> None:
    record = record_from({**LINE, "in_acc": [None, 0.5], "out_acc": [0.25, 0.75]}, 2)
    assert record.in_acc == (None, 0.5)
    assert (record.test((1,)), record.validation((1,))) == (0.5, 0.25)
    assert str(record.test((0,))) == "nan"
    assert record_from(record.to_json(), 2) == record
