"""The sentence a user gets when a number of an optimizer is out of range."""

from __future__ import annotations

import math
from typing import Any


def number(owner: str, name: str, value: Any, low: float = 0.0, below: float = math.inf) -> float:
    """The value, when it is a number in [low, below); otherwise a refusal.

    >>> number("Adam", "beta1", 1.0, below=1.0)
    Traceback (most recent call last):
    ValueError: Adam got beta1=1.0; it must be a number in [0, 1).
    """
    span = f"a number in [{low:g}, {below:g})" if below < math.inf else f"a finite number of at least {low:g}"
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value < below:
        raise ValueError(f"{owner} got {name}={value!r}; it must be {span}.")
    return float(value)


def switch(owner: str, name: str, value: Any) -> bool:
    """The value, when it is True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"{owner} got {name}={value!r}; it must be True or False.")
    return value
