"""Checks on what a user gives: what passes comes back, what does not is refused in one sentence."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genie_dg import check
from genie_dg.check import InputError, printable


class OwnError(InputError):
    """An error of a package."""


@pytest.mark.parametrize(
    ("name", "known", "end"),
    [
        ("Adm", ["adam", "sgd"], "; did you mean 'adam'?"),
        ("PACS", ["pacs"], "; did you mean 'pacs'?"),
        ("xyz", ["adam"], "."),
        ("", ["adam"], "."),
        ("adam", [], "."),
    ],
)
def test_the_nearest_name(name: str, known: list[str], end: str) -> None:
    assert check.did_you_mean(name, known) == end
    assert check.did_you_mean(name, iter(known)) == end


def test_one_of() -> None:
    assert check.one_of("x", "a", iter(["a", "b"])) == "a"
    with pytest.raises(InputError, match=r"^got x='c'; expected a or b\.$"):
        check.one_of("x", "c", ["a", "b"])
    with pytest.raises(
        OwnError, match=r"^got precision='float23'; expected float32 or bfloat16; did you mean 'float32'\?$"
    ):
        check.one_of("precision", "float23", ["float32", "bfloat16"], OwnError)
    for value in (None, 3, ["a"], {}):
        with pytest.raises(InputError, match=r"^got x=.*; expected a\.$"):
            check.one_of("x", value, ["a"])
        with pytest.raises(OwnError, match=r"^got x=.*; expected true or false\.$"):
            check.boolean("x", value, OwnError)


@pytest.mark.parametrize("value", [True, False, 1.0, "1", None, math.nan, [1]])
def test_what_is_not_a_whole_number(value: Any) -> None:
    with pytest.raises(OwnError, match=r"^got n=.*; expected a whole number of at least 0\.$"):
        check.whole_number("n", value, 0, error=OwnError)
    assert [check.whole_number("n", n, 1, 3) for n in (1, 2, 3)] == [1, 2, 3]
    for outside in (0, 4, -5):
        with pytest.raises(InputError, match=rf"^got n={outside}; expected a whole number from 1 to 3\.$"):
            check.whole_number("n", outside, 1, 3)


@pytest.mark.parametrize(
    ("limits", "good", "bad", "words"),
    [
        ({}, [0, -1.5, 1e308, -(2**1000)], [], "a number."),
        ({"low": 0}, [0, 0.0, 5], [-1e-300], "a number of at least 0."),
        ({"low": 0, "excluding": (0,)}, [5e-324], [0, -0.0], "a number above 0."),
        ({"high": 1}, [1, -7], [1.0000001], "a number at most 1."),
        ({"high": 1, "excluding": (1,)}, [0.999], [1], "a number below 1."),
        ({"low": 0, "high": 1, "excluding": (1,)}, [0, 0.5], [1, -0.1], "a number of at least 0 and below 1."),
        ({"low": 0, "high": 0.5}, [0.5], [0.6], "a number of at least 0 and at most 0.5."),
    ],
)
def test_numbers_and_their_limits(
    limits: dict[str, Any], good: list[float], bad: list[float], words: str
) -> None:
    for value in good:
        assert check.number("x", value, **limits) == value
        assert type(check.number("x", value, **limits)) is float
    for value in [*bad, True, "1", None, math.nan, math.inf, -math.inf, 10**400, -(10**400), [1]]:
        with pytest.raises(OwnError) as refused:
            check.number("x", value, **limits, error=OwnError)
        assert str(refused.value) == f"got x={check.short(value)}; expected {words}"


@given(st.floats() | st.integers() | st.booleans() | st.none() | st.text(max_size=3))
def test_a_finite_number_is_one_that_is_a_float(value: Any) -> None:
    expected = type(value) in (int, float)
    try:
        expected = expected and math.isfinite(value)
    except OverflowError:
        expected = False
    assert check.is_number(value) is expected


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Grüße, 东京 100 % ✓", "Grüße, 东京 100 % ✓"),
        ("\x1b]0;title\x07 \x1b[2J", "\\x1b]0;title\\x07 \\x1b[2J"),
        ("one\r\ntwo\tthree", "one  two three"),
        ("\x9b31m \u202eabc \ud800", "\\x9b31m \\u202eabc \\ud800"),
        (ValueError("\x00"), "\\x00"),
    ],
)
def test_a_text_to_be_shown_cannot_steer_a_terminal(text: Any, shown: str) -> None:
    assert printable(text) == shown
    assert printable(shown) == shown
    assert printable(f"{shown}\n{shown}", keep="\n") == f"{shown}\n{shown}"
