"""Types of command-line arguments, and the fields of a dataclass as flags: what a field can be is said once.

A field that is made by `option` carries what its flag, its help and its check need. `add_fields` gives a parser
the flags, `typed_fields` reads what was typed, and `check_fields` refuses values that no field can have.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

from .check import InputError, boolean, either, number, one_of, path_fault, short, whole_number

MANY = 4096
"""Workers, threads and the like: no machine has more."""
MOST = 2**53 - 1
"""Whole numbers in general: what a float still counts exactly."""


def _reader(convert: Callable[[str], Any], expected: str) -> Callable[[str], Any]:
    """A type for argparse that says what it expects."""

    def read(text: str) -> Any:
        try:
            return convert(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"got {short(text)}; expected {expected}") from error

    return read


def whole(low: int = 1, high: int = MOST) -> Callable[[str], int]:
    """A whole number from ``low`` to ``high``.

    >>> whole(0)("7")
    7
    >>> whole()("1.5")
    Traceback (most recent call last):
    argparse.ArgumentTypeError: got '1.5'; expected a whole number of at least 1
    """
    limits = f"of at least {low}" if high == MOST else f"from {low} to {high}"
    return _reader(lambda text: whole_number("", int(text), low, high), f"a whole number {limits}")


def real(low: float, high: float) -> Callable[[str], float]:
    """A number from ``low`` to ``high``.

    >>> real(0, 8)("nan")
    Traceback (most recent call last):
    argparse.ArgumentTypeError: got 'nan'; expected a number from 0 to 8
    """
    return _reader(lambda text: number("", float(text), low, high), f"a number from {low:g} to {high:g}")


def path(text: str) -> Path:
    """A path that the system can look at, whether something is there or not.

    >>> path("")
    Traceback (most recent call last):
    argparse.ArgumentTypeError: got '', which is not a path (it is empty)
    """
    if fault := path_fault(text):
        raise argparse.ArgumentTypeError(f"got {short(text)}, which is not a path ({fault})")
    return Path(text)


def path_text(text: str) -> str:
    """The same, left as text."""
    path(text)
    return text


def some_text(text: str) -> str:
    """Text with something in it, on one line.

    >>> some_text(" ")
    Traceback (most recent call last):
    argparse.ArgumentTypeError: got ' '; expected a name
    """
    if not text.strip() or not text.isprintable():
        raise argparse.ArgumentTypeError(f"got {short(text)}; expected a name")
    return text


@dataclasses.dataclass(frozen=True)
class FieldInfo:
    """What a field can be, and how it is typed on a command line.

    Args:
        help: for ``--help``.
        verbs: the commands that have its flag.
        flag: the name of the flag without dashes; empty for that of the field.
        metavar: what stands for the value in ``--help``.
        convert: from text to the value; by default what the type of the field says.
        shown: the default for ``--help``, where it hangs on something else.
        group: the title under which ``--help`` lists the flag.
        choices: the texts that are allowed; an empty default is allowed as well.
        low, high: the ends of the range of a number, which belong to it.
        below_high: the upper end does not belong to the range.
        omitted: the field's default is left out of the text that identifies a run.
        swept: a sweep may fix the field under ``[overrides]``.
    """

    help: str = ""
    verbs: tuple[str, ...] = ()
    flag: str = ""
    metavar: str | None = None
    convert: Callable[[str], Any] | None = None
    shown: str = ""
    group: str = ""
    choices: tuple[str, ...] = ()
    low: float = 0
    high: float = MOST
    below_high: bool = False
    omitted: bool = False
    swept: bool = False


def option(default: Any, help: str = "", verbs: tuple[str, ...] = (), **info: Any) -> Any:
    """A field of a dataclass with what `FieldInfo` says about it."""
    return dataclasses.field(default=default, metadata={"info": FieldInfo(help, verbs, **info)})


@cache
def infos(cls: type) -> dict[str, FieldInfo]:
    """By name, what is known of the fields of a dataclass."""
    return {one.name: one.metadata["info"] for one in dataclasses.fields(cls) if "info" in one.metadata}


def flag_of(name: str, info: FieldInfo) -> str:
    """How a field is spelled on a command line.

    >>> flag_of("batch_size", FieldInfo()), flag_of("augment", FieldInfo(flag="no-augment"))
    ('--batch-size', '--no-augment')
    """
    return f"--{info.flag or name.replace('_', '-')}"


def add_fields(parser: argparse.ArgumentParser, cls: type, verb: str, **defaults: Any) -> None:
    """Give a command the flags of a dataclass; one that is not typed is ``None``.

    Args:
        parser: of the command.
        cls: the dataclass.
        verb: the command's name.
        defaults: of fields that have another default in this command.
    """
    groups: dict[str, Any] = {"": parser}
    for name, kind, info in _kinds(cls):
        if verb in info.verbs:
            if info.group not in groups:
                groups[info.group] = parser.add_argument_group(info.group)
            flags = [*(["-o"] if name == "out" else []), flag_of(name, info)]
            details = _argument(name, kind, info, defaults.get(name, getattr(cls, name)))
            groups[info.group].add_argument(*flags, dest=name, default=None, **details)


def _argument(name: str, kind: Any, info: FieldInfo, default: Any) -> dict[str, Any]:
    """What argparse is told about a field."""
    text = f"{either(info.choices)}: {info.help}" if info.choices else info.help
    if kind is bool:
        return {"help": text, "action": "store_false" if default else "store_true"}
    convert = info.convert or (kind if kind in (int, float) else some_text)
    metavar = info.metavar or (info.flag or name).upper().replace("-", "_")
    details: dict[str, Any] = {"type": convert, "metavar": metavar}
    if isinstance(default, tuple):
        return {**details, "action": "append", "help": f"{text}; may be given several times"}
    shown = info.shown or str(default or "")
    return {**details, "help": f"{text} (default: {shown})" if shown else text}


def typed_fields(arguments: argparse.Namespace, cls: type) -> dict[str, Any]:
    """The fields of a dataclass that were typed."""
    typed = {name: getattr(arguments, name, None) for name in infos(cls)}
    return {name: tuple(x) if isinstance(x, list) else x for name, x in typed.items() if x is not None}


@cache
def _kinds(cls: type) -> list[tuple[str, Any, FieldInfo]]:
    kinds = get_type_hints(cls)
    return [(name, kinds[name], info) for name, info in infos(cls).items()]


def check_fields(instance: Any) -> None:
    """Refuse the values of a dataclass that its fields cannot have, with one whole sentence."""
    cls: type = type(instance)
    for name, kind, info in _kinds(cls):
        value = getattr(instance, name)
        if kind is bool or (kind == bool | None and value is not None):
            boolean(name, value)
        elif kind is int:
            whole_number(name, value, int(info.low))  # a sentence without the upper end, which is far away
            whole_number(name, value, int(info.low), int(info.high))
        elif kind is float:
            number(name, value, info.low, info.high, excluding=(info.high,) if info.below_high else ())
        elif kind is str and not isinstance(value, str):
            raise InputError(f"got {name}={short(value)}; expected text.")
        if info.choices and (value or getattr(cls, name, None) != ""):
            one_of(name, value, info.choices)
