"""Settings and where a search draws them from.

A `Setting` is a default and a rule for random values. Rules draw from whatever generator the protocol hands
them (anything with NumPy's ``RandomState`` methods), one call a value, so that published draws come out digit
for digit.

A setting has a kind, which follows from its rule and its default: true or false, a whole number, a number, text
or a list of names. `value_from` reads what a person wrote, on the command line or in a file, as a value of that
kind; `checked` refuses values of another kind where rows are built.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from .check import InputError, is_number, short


class Source(Protocol):
    """The part of NumPy's ``RandomState`` that rules use."""

    def uniform(self, low: float, high: float) -> float: ...

    def choice(self, a: Any) -> Any: ...


class SearchRule(Protocol):
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
    rule: SearchRule | None = None
    source: str = ""


Space = Mapping[str, Setting]
"""Hyper-parameters by name."""


def published_name(key: str) -> str:
    """The name of a setting in its paper and in public code: ours, without what Python's keywords make us add.

    >>> published_name("lambda_"), published_name("irm_lambda")
    ('lambda', 'irm_lambda')
    """
    return key.rstrip("_")


def defaults(space: Space) -> dict[str, Any]:
    """Every setting at its default."""
    return {name: setting.default for name, setting in space.items()}


SettingKind = Literal["true or false", "whole number", "number", "text", "list of names", "any"]
"""What the values of a setting are."""

EXPECTED: dict[SettingKind, str] = {"true or false": "true or false", "whole number": "a whole number"}
EXPECTED |= {"number": "a finite number", "text": "text", "list of names": "a list of names"}
_SPELLINGS = dict.fromkeys(("true", "yes", "on", "1"), True) | dict.fromkeys(("false", "no", "off", "0"), False)
"""How people write true and false, in any case of the letters."""
_LARGEST = 2**63
"""Whole numbers stay below it, as in TOML and torch."""


def kind_of_setting(setting: Setting) -> SettingKind:
    """The kind of a setting's values.

    >>> kind_of_setting(Setting(5, LogUniform(0, 4, whole=True))), kind_of_setting(Setting(5, Uniform(0, 9)))
    ('whole number', 'number')
    >>> kind_of_setting(Setting(None, LogUniform(-5, -3))), kind_of_setting(Setting(True))
    ('number', 'true or false')
    """
    rule = setting.rule
    if isinstance(rule, Uniform | LogUniform):
        return "whole number" if rule.whole else "number"
    values = [*(rule.values if isinstance(rule, Choice) else ()), setting.default]
    kinds = {_kind_of_value(value) for value in values if value is not None}
    own = rule is not None and not isinstance(rule, Choice)
    if kinds == {"number", "whole number"} or (kinds == {"whole number"} and own):
        return "number"
    return kinds.pop() if len(kinds) == 1 else "any"


def _kind_of_value(value: Any) -> SettingKind:
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "whole number" if isinstance(value, int) else "number"
    if isinstance(value, str):
        return "text"
    return "list of names" if isinstance(value, list | tuple) else "any"


def value_from(owner: str, name: str, setting: Setting, given: Any) -> Any:
    """The value that a person means, of the setting's kind; anything else is refused.

    Text stands for what it spells: ``"off"`` for false, ``"1e-3"`` for a number, ``"a,b"`` for a list. A whole
    number that is given for a number stays one, so that ``10`` and ``10.0`` keep the identities they had.

    Args:
        owner: of the setting, for the refusal.
        name: of the setting.
        setting: its row.
        given: text from a command line, or a value from TOML.

    >>> precondition, layers = Setting(True), Setting(3, Choice((3, 4, 5)))
    >>> value_from("genie", "precondition", precondition, "No"), value_from("DANN", "mlp_depth", layers, "4.0")
    (False, 4)
    >>> value_from("genie", "precondition", precondition, "maybe")
    Traceback (most recent call last):
    genie_dg.check.InputError: got genie.precondition='maybe'; expected true or false.
    """
    kind = kind_of_setting(setting)
    value = _spelled(given, kind, setting.default is None) if isinstance(given, str) else given
    if kind == "true or false" and not isinstance(value, bool) and value in (0, 1):
        value = bool(value)
    if kind == "whole number" and isinstance(value, float) and value.is_integer():
        value = int(value)
    return _checked(owner, name, setting, value, given)


def _spelled(text: str, kind: SettingKind, may_be_none: bool) -> Any:
    """What a text spells for a setting of a kind; the text itself where it spells nothing of that kind."""
    word = text.strip()
    if may_be_none and word.lower() in ("null", "none"):
        return None
    if kind == "true or false":
        return _SPELLINGS.get(word.lower(), text)
    if kind in ("whole number", "number"):
        for number in (int, float):
            with suppress(ValueError):
                return number(word)
    if kind == "list of names" or kind == "any":
        with suppress(ValueError, RecursionError):
            return json.loads(text)
    if kind == "list of names":
        return [part.strip() for part in text.split(",") if part.strip()]
    return text


def checked(owner: str, space: Space, given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as they are, each of its kind; names that the space does not have are not looked at.

    >>> checked("adam", {"lr": Setting(1e-3)}, {"lr": 1})
    {'lr': 1}
    >>> checked("adam", {"lr": Setting(1e-3)}, {"lr": "0.1"})
    Traceback (most recent call last):
    genie_dg.check.InputError: got adam.lr='0.1'; expected a finite number.
    """
    return {
        name: _checked(owner, name, space[name], value, value) if name in space else value
        for name, value in given.items()
    }


def _checked(owner: str, name: str, setting: Setting, value: Any, given: Any) -> Any:
    kind = kind_of_setting(setting)
    if value is None and setting.default is None:
        return value
    if not _fits(value, kind):
        raise InputError(f"got {owner}.{name}={short(given)}; expected {EXPECTED[kind]}.")
    return value


def _fits(value: Any, kind: SettingKind) -> bool:
    if kind == "number":
        return is_number(value)
    if kind == "list of names":
        return isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)
    same = kind == "any" or _kind_of_value(value) == kind
    return same and not (kind == "whole number" and abs(value) >= _LARGEST)
