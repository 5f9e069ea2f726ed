"""Slow twins of the metrics of an evaluation: loops over samples, in float64, from the formulas."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction


def confusion(labels: Sequence[int], predicted: Sequence[int], classes: int) -> list[list[int]]:
    table = [[0] * classes for _ in range(classes)]
    for label, guess in zip(labels, predicted, strict=True):
        table[label][guess] += 1
    return table


def macro_f1(labels: Sequence[int], predicted: Sequence[int]) -> Fraction:
    """The mean over the classes that occur of 2 precision recall / (precision + recall), 0 where both are."""
    scores = []
    for k in sorted({*labels, *predicted}):
        hit = sum(a == b == k for a, b in zip(labels, predicted, strict=True))
        precision = Fraction(hit, predicted.count(k)) if k in predicted else Fraction(0)
        recall = Fraction(hit, labels.count(k)) if k in labels else Fraction(0)
        both = precision + recall
        scores.append(2 * precision * recall / both if both else Fraction(0))
    return sum(scores, Fraction(0)) / len(scores)


def calibration_error(confidence: Sequence[float], right: Sequence[bool], bins: int) -> float:
    """Over the bins (b/B, (b+1)/B] the share of samples times the gap of accuracy and mean confidence."""
    total = 0.0
    for b in range(bins):
        low, high = b / bins, (b + 1) / bins
        inside = [k for k, c in enumerate(confidence) if low < c <= high or (b == 0 and c == 0)]
        if inside:
            accuracy = sum(right[k] for k in inside) / len(inside)
            mean = sum(confidence[k] for k in inside) / len(inside)
            total += len(inside) / len(confidence) * abs(accuracy - mean)
    return total
