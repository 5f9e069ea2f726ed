"""Sums, means, the one standard error of this package, and Student's t distribution, without scipy.

Since Python 3.12 the built-in ``sum`` corrects the rounding of floats, so that it returns other last digits
than before. Results are added here one by one, as every version did before 3.12.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable

from .check import number, whole_number


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


def standard_error(values: Iterable[float]) -> float:
    """DomainBed's standard error of a mean: the standard deviation with divisor n, over the square root of n.

    Tables of the field are printed with it, so every ± of this package is this one. It is smaller than the
    unbiased one (divisor n - 1) by the factor sqrt((n - 1) / n); intervals do not use it.

    >>> round(100 * standard_error([0.1, 0.2, 0.3]), 1)
    4.7
    """
    values = list(values)
    centre = mean(values)
    variance = total((value - centre) ** 2 for value in values) / len(values)
    return math.sqrt(variance) / math.sqrt(len(values))


@functools.lru_cache(maxsize=256)
def t_quantile(level: float, freedom: int) -> float:
    """The t with P(|T| < t) = level, by bisection of the exact distribution down to the last bit.

    >>> round(t_quantile(0.95, 4), 4), round(t_quantile(0.99, 1), 3)
    (2.7764, 63.657)
    """
    number("level", level, 0, 1, excluding=(0, 1))
    whole_number("freedom", freedom)
    low, high = 0.0, 1.0
    while probability_within(high, freedom) < level:
        high *= 2
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if probability_within(middle, freedom) < level else (low, middle)
    return high


def probability_within(t: float, freedom: int) -> float:
    """P(|T| < t) for a whole number of degrees of freedom: a finite sum in cos(atan(t / sqrt(freedom))).

    >>> round(probability_within(2.7764, 4), 4)
    0.95
    """
    angle = math.atan(t / math.sqrt(freedom))
    square = math.cos(angle) ** 2
    odd = freedom % 2
    term, total = (math.cos(angle), math.cos(angle)) if odd else (1.0, 1.0)
    for k in range(2 if odd else 1, freedom - 1, 2):
        term *= square * k / (k + 1)
        total += term
    if freedom == 1:
        return 2 * angle / math.pi
    return 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total
