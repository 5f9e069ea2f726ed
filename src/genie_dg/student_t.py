"""Student's t distribution for whole degrees of freedom, without scipy."""

from __future__ import annotations

import functools
import math

from .check import number, whole_number


@functools.lru_cache(maxsize=256)
def t_quantile(level: float, freedom: int) -> float:
    """The t with P(|T| < t) = level, by bisection of the exact distribution down to the last bit.

    >>> round(t_quantile(0.95, 4), 4), round(t_quantile(0.99, 1), 3)
    (2.7764, 63.657)
    """
    number("level", level, 0, 1, open_low=True, open_high=True)
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
