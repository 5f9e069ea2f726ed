"""TOML from a person: read, or refused in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from genie_dg.check import InputError
from genie_dg.protocols.toml_file import check_keys, check_kind, kind_of, read_toml


def test_a_file_is_read_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text('a = 1\n[b]\nc = "ä"\n', encoding="utf-8")
    assert read_toml(path, InputError) == {"a": 1, "b": {"c": "ä"}}
    for content in (b"a = ", b"a = \xff", b"a = 1\na = 2\n"):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"a\.toml is not TOML \(.*\); fix it and try again\.$"):
            read_toml(path, InputError)
    with pytest.raises(InputError, match=r"cannot be read \(.*\); name a TOML file\.$"):
        read_toml(tmp_path, InputError)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (True, "true or false"),
        (0, "whole number"),
        (0.0, "number"),
        ("", "text"),
        ({}, "table"),
        ((), "list"),
        (None, "NoneType"),
    ],
)
def test_kinds(value: Any, kind: str) -> None:
    assert kind_of(value) == kind
    check_kind("x", "k", value, kind, InputError)
    with pytest.raises(InputError, match=r"^x has k = "):
        check_kind("x", "k", value, "table" if kind != "table" else "text", InputError)


def test_numbers_are_finite_and_whole_numbers_are_numbers() -> None:
    check_kind("x", "k", 3, "number", InputError)
    for value in (float("nan"), float("inf")):
        with pytest.raises(InputError, match=r"^x has k = \w+; it must be a finite number\.$"):
            check_kind("x", "k", value, "number", InputError)
    for value in (3.0, True):
        with pytest.raises(InputError, match=r"it must be a whole number\.$"):
            check_kind("x", "k", value, "whole number", InputError)


def test_unknown_keys_are_refused_with_the_nearest_one() -> None:
    check_keys("x", ["steps"], ["name", "steps"], InputError)
    with pytest.raises(
        InputError, match=r"^x has no 'step'; its keys are name, steps; did you mean 'steps'\?$"
    ):
        check_keys("x", ["step"], ["name", "steps"], InputError)
