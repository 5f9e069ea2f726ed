"""The records of a run: their means, their lines, and what is none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genie_dg.check import InputError
from genie_dg.runs.record import Record, record_from

LINE = {"step": 5, "epoch": 0.5, "loss": 1.5, "validation_loss": None, "in_acc": [0.5, 0.25], "out_acc": [1, 0]}


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
    assert record_from(json.loads(json.dumps(record.to_json())), len(accuracies)) == record
    assert ("swad" in record.to_json()) == swad


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"step": None}, r"^got step=None; expected a whole number from 0 to "),
        ({"step": 2**53}, r"^got step=9007199254740992; "),
        ({"step": 1.0}, r"^got step=1\.0; "),
        ({"step": True}, r"^got step=True; "),
        ({"loss": "1"}, r"^got loss='1'; expected a number\.$"),
        ({"loss": True}, r"^got loss=True; "),
        ({"loss": float("nan")}, r"^got loss=nan; "),
        ({"epoch": float("inf")}, r"^got epoch=inf; "),
        ({"validation_loss": 10**400}, r"^got validation_loss=1000"),
        ({"in_acc": None}, r"^got in_acc=None; expected a list of 2 accuracies\.$"),
        ({"in_acc": [0.5]}, r"^got in_acc=\[0\.5\]; "),
        ({"in_acc": "ab"}, r"^got in_acc='ab'; "),
        (
            {"out_acc": [0.5, 1.5]},
            r"^got an accuracy in out_acc=1\.5; expected a number of at least 0 and at most 1",
        ),
        ({"out_acc": [0.5, None]}, r"^got an accuracy in out_acc=None; "),
        ({"out_acc": [0.5, float("nan")]}, r"^got an accuracy in out_acc=nan; "),
    ],
)
def test_what_is_not_a_record(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        record_from({**LINE, **changes}, 2)


def test_losses_that_are_not_finite_are_kept_where_a_run_goes_on() -> None:
    line = {**LINE, "loss": float("inf"), "validation_loss": float("nan")}
    record = record_from(line, 2, finite=False)
    assert record.loss == float("inf")
    assert str(record.validation_loss) == "nan"
    for changes in ({"loss": "1"}, {"loss": True}, {"in_acc": [float("nan"), 0.5]}):
        with pytest.raises(InputError):
            record_from({**LINE, **changes}, 2, finite=False)


def test_what_is_missing_is_none() -> None:
    record = record_from({"step": 0, "in_acc": [0, 1], "out_acc": (0.5, 0.5)}, 2)
    assert (record.epoch, record.loss, record.validation_loss, record.swad) == (None, None, None, False)
    assert all(type(value) is float for value in record.in_acc)


def test_only_accuracies_that_nothing_reads_may_be_missing() -> None:
    line = {"step": 3, "in_acc": [None, 0.5], "out_acc": [0.25, 0.75]}
    record = record_from(line, 2, test_domains=(1,))
    assert record.in_acc == (None, 0.5)
    assert (record.test((1,)), record.validation((1,))) == (0.5, 0.25)
    assert record_from(record.to_json(), 2) == record
    for wrong in ({"test_domains": (0,)}, {"test_domains": (0, 1)}):
        with pytest.raises(InputError, match="an accuracy in in_acc"):
            record_from(line, 2, **wrong)
    with pytest.raises(InputError, match="an accuracy in out_acc"):
        record_from({**line, "out_acc": [None, 1.0]}, 2)
