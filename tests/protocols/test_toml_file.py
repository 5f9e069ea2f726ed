"""TOML from a person: read, or refused in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from genie_dg.check import InputError
from genie_dg.protocols.toml_file import read_toml, typed


def test_a_file_is_read_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text('a = 1\n[b]\nc = "ä"\n', encoding="utf-8")
    assert read_toml(path) == {"a": 1, "b": {"c": "ä"}}
    for content in (b"a = ", b"a = \xff", b"a = 1\na = 2\n"):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"a\.toml is not TOML \(.*\); fix it and try again\.$"):
            read_toml(path)
    with pytest.raises(InputError, match=r"cannot be read \(.*\); name a TOML file\.$"):
        read_toml(tmp_path)


@pytest.mark.parametrize(
    ("value", "kind", "sentence"),
    [
        (3, str, "x has k = 3; it must be text."),
        (True, int, "x has k = True; it must be a whole number."),
        ("yes", bool, "x has k = 'yes'; it must be true or false."),
        (1.5, int | list[int] | None, "x has k = 1.5; it must be a whole number or a list."),
        ([["a"], 3], list[list[str]], "x has k = [['a'], 3]; [1] of it must be a list."),
        (
            {"a": {"b": 3}},
            dict[str, dict[str, str]],
            "x has k = {'a': {'b': 3}}; [...][...] of it must be text.",
        ),
    ],
)
def test_a_value_of_another_type_is_refused(value: Any, kind: Any, sentence: str) -> None:
    with pytest.raises(InputError) as refused:
        typed("x", "k", value, kind)
    assert str(refused.value) == sentence
