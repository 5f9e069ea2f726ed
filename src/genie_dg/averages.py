"""Sums and means whose last digit does not depend on Python's version.

Since Python 3.12 the built-in ``sum`` corrects the rounding of floats, so that it returns other last digits
than before. Results are added here one by one, as every version did before 3.12.
"""

from __future__ import annotations

from collections.abc import Iterable


def total(values: Iterable[float]) -> float:
    """The sum, from the first to the last.

    >>> total([0.1] * 10)  # sum([0.1] * 10) is 1.0 since Python 3.12
    0.9999999999999999
    """
    added = 0.0
    for value in values:
        added += value
    return added


def mean(values: Iterable[float]) -> float:
    """The sum divided by how many there are, at least one.

    >>> mean([0.1] * 10)
    0.09999999999999999
    """
    values = list(values)
    return total(values) / len(values)
