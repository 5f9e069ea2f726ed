"""Types of command-line arguments for argparse, each with one sentence when it refuses."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from .check import number, path_fault, short, whole_number

MANY = 4096
"""Workers, threads and the like: no machine has more."""
MOST = 2**53 - 1
"""Whole numbers in general: what a float still counts exactly."""


def whole(low: int = 1, high: int = MOST) -> Callable[[str], int]:
    """A whole number from ``low`` to ``high``.

    >>> whole(0)("7")
    7
    >>> whole()("1.5")
    Traceback (most recent call last):
    argparse.ArgumentTypeError: got '1.5'; expected a whole number of at least 1
    """

    def convert(text: str) -> int:
        limits = f"of at least {low}"
        try:
            value = whole_number("", int(text), low)
            limits = f"from {low} to {high}"
            return whole_number("", value, low, high)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"got {short(text)}; expected a whole number {limits}") from error

    return convert


def real(low: float, high: float) -> Callable[[str], float]:
    """A number from ``low`` to ``high``.

    >>> real(0, 8)("nan")
    Traceback (most recent call last):
    argparse.ArgumentTypeError: got 'nan'; expected a number from 0 to 8
    """

    def convert(text: str) -> float:
        try:
            return number("", float(text), low, high)
        except ValueError as error:
            raise argparse.ArgumentTypeError(
                f"got {short(text)}; expected a number from {low:g} to {high:g}"
            ) from error

    return convert


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
