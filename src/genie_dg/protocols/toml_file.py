"""What a person writes in TOML: read it, and refuse what is of the wrong kind, in one sentence."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from genie_dg.check import did_you_mean

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

KINDS = ("text", "whole number", "number", "true or false", "table")


def read_toml(path: Path, fault: type[ValueError]) -> dict[str, Any]:
    """The contents of a file; ``fault`` is raised when it cannot be read or is not TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise fault(f"{path} cannot be read ({error.strerror}); name a TOML file.") from error
    except ValueError as error:
        raise fault(f"{path} is not TOML ({str(error).rstrip('.')}); fix it and try again.") from error


def kind_of(value: Any) -> str:
    """The kind of a value in plain words.

    >>> kind_of(True), kind_of(1), kind_of(1.0), kind_of([])
    ('true or false', 'whole number', 'number', 'list')
    """
    if isinstance(value, bool):
        return "true or false"
    kinds = (
        (int, "whole number"),
        (float, "number"),
        (str, "text"),
        (Mapping, "table"),
        ((list, tuple), "list"),
    )
    return next((word for kind, word in kinds if isinstance(value, kind)), type(value).__name__)


def check_kind(where: str, key: str, value: Any, kind: str, fault: type[ValueError]) -> None:
    """Refuse a value that is not of a kind; a whole number is a number, and numbers are finite."""
    came = kind_of(value)
    fits = came == kind or (kind == "number" and came == "whole number")
    if came == "number" and not math.isfinite(value):
        raise fault(f"{where} has {key} = {value}; it must be a finite number.")
    if not fits:
        raise fault(f"{where} has {key} = {value!r}, a {came}; it must be a {kind}.")


def check_keys(where: str, given: Iterable[str], known: Iterable[str], fault: type[ValueError]) -> None:
    """Refuse a key that is not known, with the nearest one that is."""
    known = list(known)
    for key in given:
        if key not in known:
            raise fault(f"{where} has no {key!r}; its keys are {', '.join(known)}{did_you_mean(key, known)}")
