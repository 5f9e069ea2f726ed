"""Metrics against slow twins and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.metrics
from hypothesis import given, settings
from hypothesis import strategies as st

from genie_dg.inference import metrics
from tests.oracle import metrics as slow

CLASSES = 5
PAIRS = st.lists(st.tuples(st.integers(0, CLASSES - 1), st.integers(0, CLASSES - 1)), min_size=1, max_size=40)


@settings(max_examples=40, deadline=None)
@given(PAIRS)
def test_counts_are_those_of_the_twin_and_of_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    labels, predicted = (list(column) for column in zip(*pairs, strict=True))
    table = metrics.confusion_counts(np.array(labels), np.array(predicted), CLASSES)
    assert table.tolist() == slow.confusion(labels, predicted, CLASSES)
    assert table.tolist() == sklearn.metrics.confusion_matrix(labels, predicted, labels=range(CLASSES)).tolist()
    assert metrics.macro_f1(table) == pytest.approx(float(slow.macro_f1(labels, predicted)), rel=1e-12)
    theirs = sklearn.metrics.f1_score(labels, predicted, average="macro", zero_division=0)
    assert metrics.macro_f1(table) == pytest.approx(theirs, rel=1e-12)
    assert metrics.share_right(np.array(labels), np.array(predicted)) == sklearn.metrics.accuracy_score(
        labels, predicted
    )


@settings(max_examples=40, deadline=None)
@given(PAIRS)
def test_recall_and_precision_of_each_class(pairs: list[tuple[int, int]]) -> None:
    labels, predicted = (list(column) for column in zip(*pairs, strict=True))
    table = metrics.confusion_counts(np.array(labels), np.array(predicted), CLASSES)
    theirs = sklearn.metrics.precision_recall_fscore_support(
        labels, predicted, labels=range(CLASSES), zero_division=np.nan
    )
    for ours, other, occurs in (
        (metrics.precisions(table), theirs[0], set(predicted)),
        (metrics.recalls(table), theirs[1], set(labels)),
    ):
        assert [k for k, value in enumerate(ours) if value is not None] == sorted(occurs)
        assert [value for value in ours if value is not None] == pytest.approx(other[sorted(occurs)], rel=1e-12)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=60), st.sampled_from([1, 4, 15])
)
def test_the_calibration_error_is_that_of_the_twin(samples: list[tuple[float, bool]], bins: int) -> None:
    confidence, right = (list(column) for column in zip(*samples, strict=True))
    listed = metrics.confidence_bins(np.array(confidence), np.array(right), bins)
    assert sum(one.count for one in listed) == len(samples)
    assert metrics.calibration_error(listed) == pytest.approx(
        slow.calibration_error(confidence, right, bins), abs=1e-12
    )
