"""What a person writes in TOML: read it, and refuse what is of the wrong type, in one sentence."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from genie_dg.check import InputError, did_you_mean, either, short

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_WORDS = {"str": "text", "int": "a whole number", "float": "a number", "bool": "true or false"}
_WORDS |= {"object": "a table", "array": "a list"}
"""What msgspec calls types, in plain words."""


def read_toml(path: Path, error: type[ValueError] = InputError) -> dict[str, Any]:
    """The contents of a file; ``error`` is raised when it cannot be read or is not TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as fault:
        raise error(f"{path} cannot be read ({fault.strerror}); name a TOML file.") from fault
    except ValueError as fault:
        raise error(f"{path} is not TOML ({str(fault).rstrip('.')}); fix it and try again.") from fault


def typed(where: str, key: str, value: Any, kind: Any) -> Any:
    """A value from TOML as an instance of a type; what cannot be one is refused.

    Args:
        where: the file or table, for the refusal.
        key: of the value.
        value: from TOML.
        kind: a type that msgspec knows.

    >>> typed("a.toml", "steps", [1], list[int] | None)
    [1]
    >>> typed("a.toml", "steps", "x", list[int] | int)
    Traceback (most recent call last):
    genie_dg.check.InputError: a.toml has steps = 'x'; it must be a whole number or a list.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        fault, _, place = str(error).partition(" - at `$")
        part = f"{place.rstrip('`')} of it" if place else "it"
        expected = fault.removeprefix("Expected ").partition(", got")[0]
        expected = re.sub("`([^`]*)`", _in_words, expected)
        raise InputError(f"{where} has {key} = {short(value)}; {part} must be {expected}.") from error


def _in_words(types: re.Match[str]) -> str:
    """Types as msgspec lists them, in plain words; "nothing" cannot be written in TOML."""
    return either(_WORDS[name] for name in types[1].split(" | ") if name != "null")


def check_keys(where: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse a key that is not known, with the nearest one that is."""
    known = list(known)
    for key in given:
        if key not in known:
            hint = did_you_mean(key, known)
            raise InputError(f"{where} has no {key!r}; its keys are {', '.join(known)}{hint}")
