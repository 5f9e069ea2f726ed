"""Settings and where a search draws them from.

A `Setting` is a default and a rule for random values. Rules draw from whatever generator the protocol hands
them (anything with NumPy's ``RandomState`` methods), one call a value, so that published draws come out digit
for digit.
"""

from __future__ import annotations

import keyword
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


class Source(Protocol):
    """The part of NumPy's ``RandomState`` that rules use."""

    def uniform(self, low: float, high: float) -> float: ...

    def choice(self, a: Any) -> Any: ...


class Rule(Protocol):
    """How a random value is made."""

    def draw(self, random: Source) -> Any: ...


@dataclass(frozen=True)
class Uniform:
    """A number between ``low`` and ``high``. Whole numbers are cut, not rounded."""

    low: float
    high: float
    whole: bool = False

    def draw(self, random: Source) -> float | int:
        value = random.uniform(self.low, self.high)
        return int(value) if self.whole else float(value)


@dataclass(frozen=True)
class LogUniform:
    """``base`` to the power of a uniform exponent: log-uniform. Whole numbers are cut, not rounded.

    >>> import numpy as np
    >>> LogUniform(-5, -3.5).draw(np.random.RandomState(0)) == 10 ** np.random.RandomState(0).uniform(-5, -3.5)
    True
    """

    low: float
    high: float
    base: float = 10.0
    whole: bool = False

    def draw(self, random: Source) -> float | int:
        value = self.base ** random.uniform(self.low, self.high)
        return int(value) if self.whole else float(value)


@dataclass(frozen=True)
class Choice:
    """One of a few values, each equally likely."""

    values: tuple[Any, ...]

    def draw(self, random: Source) -> Any:
        return self.values[int(random.choice(list(range(len(self.values)))))]


@dataclass(frozen=True)
class Setting:
    """One hyper-parameter: its default, its rule (``None``: not searched), and where these come from."""

    default: Any
    rule: Rule | None = None
    source: str = ""


Space = Mapping[str, Setting]
"""Hyper-parameters by name."""


def published_name(key: str) -> str:
    """The name of a setting in its paper and in public code: ours, without what Python's keywords make us add.

    >>> published_name("lambda_"), published_name("irm_lambda")
    ('lambda', 'irm_lambda')
    """
    return key.rstrip("_")


def setting_name(published: str) -> str:
    """The inverse of `published_name`.

    >>> setting_name("lambda"), setting_name("tau")
    ('lambda_', 'tau')
    """
    return f"{published}_" if keyword.iskeyword(published) else published


def defaults(space: Space) -> dict[str, Any]:
    """Every setting at its default."""
    return {name: setting.default for name, setting in space.items()}
