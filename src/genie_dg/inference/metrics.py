"""How right predictions are: pure functions of labels, predictions and confidences.

With C[i, k] the number of samples of class i that were taken for class k,

    recall_k = C[k, k] / sum_j C[k, j]        precision_k = C[k, k] / sum_i C[i, k]
    F1_k = 2 C[k, k] / (sum_j C[k, j] + sum_i C[i, k])

and macro-F1 is the mean of F1_k over the classes that occur, as a label or as a prediction. The expected
calibration error sorts samples by confidence into bins (b/B, (b+1)/B] and is

    sum over bins of n_b / n * |accuracy_b - mean confidence_b|
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genie_dg.statistics import mean, total

CALIBRATION_BINS = 15
"""Of the expected calibration error, as in Guo et al., On Calibration of Modern Neural Networks, ICML 2017."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Bin:
    """The samples whose confidence is above ``low`` and at most ``high``: how many, and their two means."""

    low: float
    high: float
    count: int
    confidence: float | None
    accuracy: float | None


def confusion_counts(labels: Ints, predicted: Ints, classes: int) -> Ints:
    """``[i, k]``: how many samples of class i were taken for class k.

    >>> confusion_counts(np.array([0, 0, 1]), np.array([0, 1, 1]), 2).tolist()
    [[1, 1], [0, 1]]
    """
    counts = np.bincount(labels * classes + predicted, minlength=classes * classes)
    table: Ints = counts.reshape(classes, classes).astype(np.int64)
    return table


def share_right(labels: Ints, predicted: Ints) -> float:
    """The share of right predictions."""
    return int((labels == predicted).sum()) / len(labels)


def recalls(table: Ints) -> list[float | None]:
    """By class the share of its samples that were recognised; ``None`` for a class without samples."""
    return _ratios(table.diagonal(), table.sum(1))


def precisions(table: Ints) -> list[float | None]:
    """By class the share of its predictions that were right; ``None`` for a class that was never predicted."""
    return _ratios(table.diagonal(), table.sum(0))


def f1_scores(table: Ints) -> list[float | None]:
    """By class the harmonic mean of the two; ``None`` for a class that does not occur."""
    return _ratios(2 * table.diagonal(), table.sum(0) + table.sum(1))


def macro_f1(table: Ints) -> float:
    """The mean F1 of the classes that occur.

    >>> round(macro_f1(np.array([[1, 1, 0], [0, 1, 0], [0, 0, 0]])), 4)
    0.6667
    """
    scores = [score for score in f1_scores(table) if score is not None]
    return mean(scores)


def confidence_bins(confidence: Floats, right: NDArray[np.bool_], bins: int = CALIBRATION_BINS) -> list[Bin]:
    """Samples by confidence: how sure the model was, and how often it was right."""
    edges = [b / bins for b in range(bins + 1)]
    place = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, bins - 1)
    listed = []
    for b in range(bins):
        inside = place == b
        count = int(inside.sum())
        means = [float(x[inside].mean()) if count else None for x in (confidence, right)]
        listed.append(Bin(edges[b], edges[b + 1], count, *means))
    return listed


def calibration_error(bins: list[Bin]) -> float:
    """The expected calibration error."""
    samples = sum(one.count for one in bins)
    gaps = ((one.count, one.accuracy, one.confidence) for one in bins)
    return total(n / samples * abs(a - c) for n, a, c in gaps if a is not None and c is not None)


def _ratios(above: NDArray[Any], below: NDArray[Any]) -> list[float | None]:
    pairs = zip(above.tolist(), below.tolist(), strict=True)
    return [a / b if b else None for a, b in pairs]
