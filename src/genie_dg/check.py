"""Checks on what a user gives, one function for each kind, each with one whole sentence when it refuses.

A message says what was got, what was expected and, where it helps, what to do:
``got lr=-1; expected a number above 0.``
"""

from __future__ import annotations

import math
import os
import sys
import unicodedata
from collections.abc import Collection, Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any


class GenieError(Exception):
    """An error whose message is one whole sentence for the user; the command line prints it and ends with 2."""


class InputError(GenieError, ValueError):
    """What was asked for cannot be done."""


class MissingPackage(GenieError, ImportError):
    """An optional package is not installed; the message names the extra that brings it."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a refusal: ``"; did you mean 'adam'?"``, or a full stop.

    >>> did_you_mean("Adm", ["adam", "sgd"]), did_you_mean("x", ["adam"])
    ("; did you mean 'adam'?", '.')
    """
    by_key = {key.lower(): key for key in known}
    near = get_close_matches(name.lower(), by_key, n=1)
    return f"; did you mean {by_key[near[0]]!r}?" if near else "."


def one_of(name: str, value: Any, allowed: Iterable[str], error: type[InputError] = InputError) -> str:
    """A text that is one of a few.

    >>> one_of("precision", "float23", ["float32", "bfloat16"])
    Traceback (most recent call last):
    genie_dg.check.InputError: got precision='float23'; expected float32 or bfloat16; did you mean 'float32'?
    """
    choice = list(allowed)
    if value not in choice:
        raise error(f"got {name}={short(value)}; expected {either(choice)}{did_you_mean(str(value), choice)}")
    return str(value)


def whole_number(
    name: str, value: Any, low: int = 1, high: int | None = None, error: type[InputError] = InputError
) -> int:
    """A whole number from ``low`` to ``high``; True and False are not numbers.

    >>> whole_number("steps", 0)
    Traceback (most recent call last):
    genie_dg.check.InputError: got steps=0; expected a whole number of at least 1.
    """
    fits = isinstance(value, int) and not isinstance(value, bool)
    if not fits or value < low or (high is not None and value > high):
        limits = f"of at least {low}" if high is None else f"from {low} to {high}"
        raise error(f"got {name}={short(value)}; expected a whole number {limits}.")
    return int(value)


def number(
    name: str,
    value: Any,
    low: float = -math.inf,
    high: float = math.inf,
    excluding: Collection[float | None] = (),
    error: type[InputError] = InputError,
) -> float:
    """A finite number between two ends, which belong to the range unless they are excluded.

    >>> number("lr", -1, 0, excluding=[0])
    Traceback (most recent call last):
    genie_dg.check.InputError: got lr=-1; expected a number above 0.
    >>> number("p", 1.0, 0, 1, excluding=[1])
    Traceback (most recent call last):
    genie_dg.check.InputError: got p=1.0; expected a number of at least 0 and below 1.
    """
    if not is_number(value) or not low <= value <= high or value in excluding:
        ends = [f"{'above' if low in excluding else 'of at least'} {low:g}"] if low > -math.inf else []
        ends += [f"{'below' if high in excluding else 'at most'} {high:g}"] if high < math.inf else []
        limits = " ".join(["number", " and ".join(ends)]).strip()
        raise error(f"got {name}={short(value)}; expected a {limits}.")
    return float(value)


def boolean(name: str, value: Any, error: type[InputError] = InputError) -> bool:
    """True or False, and nothing that merely counts as one."""
    if not isinstance(value, bool):
        raise error(f"got {name}={short(value)}; expected true or false.")
    return value


def folder(path: Path, what_to_do: str, error: type[InputError] = InputError) -> Path:
    """A folder that is there."""
    if not os.path.isdir(path):  # Path.is_dir raises where a folder above it is closed to this user
        raise error(f"{path} is not a folder; {what_to_do}.")
    return path


def writable_folder(name: str, text: str | Path, error: type[InputError] = InputError) -> Path:
    """A folder that is there and can be written to, or that can be made; nothing is made here.

    >>> writable_folder("--out", "")
    Traceback (most recent call last):
    genie_dg.check.InputError: got --out='', which is not a path (it is empty); name a folder.
    """
    got = f"got {name}={short(str(text))}"
    if fault := path_fault(text):
        raise error(f"{got}, which is not a path ({fault}); name a folder.")
    above = next(place for place in (Path(text), *Path(text).absolute().parents) if os.path.lexists(place))
    if not above.is_dir():
        raise error(f"{got}, and {above} is not a folder; choose another one.")
    if not os.access(above, os.W_OK | os.X_OK):
        raise error(f"{got}, and {above} cannot be written; choose another folder.")
    return Path(text)


def writable_file(name: str, path: Path, error: type[InputError] = InputError) -> Path:
    """A file that can be written, in a folder that is there; nothing is written here."""
    if path.is_dir():
        raise error(f"got {name}={short(str(path))}, which is a folder; name a file.")
    if not path.parent.is_dir():
        raise error(f"got {name}={short(str(path))}, and {path.parent} is not a folder; make it first.")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise error(f"got {name}={short(str(path))}, which cannot be written; name another file.")
    return path


def path_fault(text: str | Path) -> str:
    """Why a text cannot be a path, whatever is there; empty when it can.

    >>> path_fault("a/b"), path_fault("a\\0b")
    ('', 'it has a null byte')
    """
    if not str(text).strip():
        return "it is empty"
    if "\0" in str(text):
        return "it has a null byte"
    try:
        os.lstat(text)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return ""
    except (OSError, ValueError) as fault:
        return getattr(fault, "strerror", None) or str(fault)
    return ""


def is_number(value: Any) -> bool:
    """Whether a value is a finite number; True and False are not."""
    limit = sys.float_info.max  # a whole number beyond it is not a float
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -limit <= value <= limit


def either(names: Iterable[str]) -> str:
    """Names as a choice.

    >>> either(["a"]), either(["a", "b", "c"])
    ('a', 'a, b or c')
    """
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last


def short(value: Any, most: int = 60) -> str:
    """A value as it would be typed, cut where it is long."""
    text = repr(value)
    return text if len(text) <= most else f"{text[: most - 3]}..."


def printable(text: Any, keep: str = "") -> str:
    r"""A text that cannot steer a terminal: what came from files or errors goes through here to be shown.

    Breaks of lines and tabs become spaces; other control characters are shown as they would be typed.

    Args:
        text: what is to be shown.
        keep: control characters that stay, such as the breaks of lines of a table.

    >>> printable("red \x1b[31m\nname"), printable("a\n\x07b", keep="\n")
    ('red \\x1b[31m name', 'a\n\\x07b')
    """
    return "".join(c if c in keep or not _steers(c) else _shown(c) for c in str(text))


def _steers(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")


def _shown(character: str) -> str:
    return " " if character in "\n\r\t" else ascii(character)[1:-1]
