"""When to measure: functions from a step to yes or no."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from ._problem import MeasurementError

Schedule: TypeAlias = "Callable[[int], bool]"


def every(interval: int, start: int = 0) -> Schedule:
    """At ``start``, and every ``interval`` steps after it.

    >>> [step for step in range(10) if every(4)(step)]
    [0, 4, 8]
    """
    if interval < 1:
        raise MeasurementError(f"every({interval}) came; the interval must be 1 step or more.")
    return lambda step: step >= start and (step - start) % interval == 0


def log_steps(count: int, last: int = 10_000) -> Schedule:
    """At about ``count`` steps from 1 to ``last``, evenly spaced on a logarithmic scale, and on at the same
    pace.

    Early steps lie closer together than whole numbers allow, so there are fewer of them.

    >>> [step for step in range(1200) if log_steps(4, last=1000)(step)]
    [1, 10, 100, 1000]
    """
    if count < 2 or last < 2:
        raise MeasurementError(
            f"log_steps({count}, last={last}) came; both numbers must be 2 or more, such as log_steps(50)."
        )
    pace = (count - 1) / math.log(last)

    def due(step: int) -> bool:
        if step < 1:
            return False
        # The k-th measurement belongs to the whole number nearest to exp(k / pace).
        k = round(math.log(step) * pace)
        nearest = (round(math.exp(j / pace)) for j in (k - 1, k, k + 1) if j >= 0)
        return step in nearest

    return due
