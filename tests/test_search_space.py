"""Settings have kinds: what a person writes becomes a value of the kind, or is refused in one sentence."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from genie_dg.algorithms.registry import ALGORITHMS
from genie_dg.check import InputError
from genie_dg.optim.registry import OPTIMIZERS
from genie_dg.search_space import (
    Choice,
    LogUniform,
    Setting,
    Space,
    Uniform,
    checked,
    defaults,
    kind_of_setting,
    value_from,
)

SPACES: dict[str, Space] = {row.name: row.space for row in (*ALGORITHMS.values(), *OPTIMIZERS.values())}
NAMED = [(owner, name) for owner, space in SPACES.items() for name in space]


@pytest.mark.parametrize(("owner", "name"), NAMED)
def test_every_setting_has_a_kind_that_its_default_and_its_choices_are_of(owner: str, name: str) -> None:
    setting = SPACES[owner][name]
    assert kind_of_setting(setting) != "any"
    values = [setting.default, *(setting.rule.values if isinstance(setting.rule, Choice) else ())]
    for value in values:
        assert checked(owner, SPACES[owner], {name: value}) == {name: value}
        if not isinstance(value, tuple):
            again = value_from(owner, name, setting, str(value))
            assert (again, type(again)) == (value, type(value)) or kind_of_setting(setting) == "number"
            assert again == value


@pytest.mark.parametrize(("owner", "name"), NAMED)
def test_what_no_setting_can_be(owner: str, name: str) -> None:
    setting = SPACES[owner][name]
    wrong: list[Any] = [{"a": 1}, object()]
    if kind_of_setting(setting) != "text":
        wrong += [math.nan, math.inf, 10**400, "nan", "1e400"]
    if kind_of_setting(setting) != "list of names":
        wrong += [[1], ["a", "b"]]
    for value in wrong if kind_of_setting(setting) != "list of names" else wrong[:2]:
        with pytest.raises(InputError, match=rf"^got {re.escape(owner)}\.{name}=.*; expected .*\.$"):
            value_from(owner, name, setting, value)
        with pytest.raises(InputError, match=rf"^got {re.escape(owner)}\.{name}=.*; expected .*\.$"):
            checked(owner, SPACES[owner], {name: value})


@pytest.mark.parametrize("word", ["true", "yes", "on", "1", "True", "YES", "oN", " true "])
def test_spellings_of_true(word: str) -> None:
    assert value_from("genie", "noise", Setting(False), word) is True


@pytest.mark.parametrize("word", ["false", "no", "off", "0", "False", "NO", "oFF"])
def test_spellings_of_false(word: str) -> None:
    assert value_from("genie", "noise", Setting(True), word) is False


@pytest.mark.parametrize(("given", "meant"), [(0, False), (1, True), (False, False)])
def test_numbers_that_stand_for_true_and_false(given: object, meant: bool) -> None:
    assert value_from("genie", "noise", Setting(True), given) is meant


@pytest.mark.parametrize("given", ["maybe", "", "2", "truee", 2, -1, None, [True]])
def test_what_is_neither_true_nor_false(given: object) -> None:
    with pytest.raises(InputError, match=r"^got genie\.noise=.*; expected true or false\.$"):
        value_from("genie", "noise", Setting(True), given)


@pytest.mark.parametrize(
    ("setting", "given", "meant"),
    [
        (Setting(3), "7", 7),
        (Setting(3), "1e3", 1000),
        (Setting(3), 7.0, 7),
        (Setting(3, Uniform(1, 9)), "7.5", 7.5),
        (Setting(0.5), "10", 10),
        (Setting(0.5), ".25", 0.25),
        (Setting(0.5), -1, -1),
        (Setting(None, LogUniform(-5, -3)), "null", None),
        (Setting(None, LogUniform(-5, -3)), "1e-3", 1e-3),
        (Setting("adam"), "true", "true"),
        (Setting("adam"), "3", "3"),
        (Setting(()), "a, b", ["a", "b"]),
        (Setting(()), '["a", "b"]', ["a", "b"]),
        (Setting(()), ["a"], ["a"]),
    ],
)
def test_texts_and_values_become_what_they_mean(setting: Setting, given: object, meant: object) -> None:
    value = value_from("row", "name", setting, given)
    assert value == meant
    assert type(value) is type(meant)


@pytest.mark.parametrize(
    ("setting", "given"),
    [
        (Setting(3), "7.5"),
        (Setting(3), True),
        (Setting(3), 10**30),
        (Setting(3), "1" * 5000),
        (Setting(0.5), True),
        (Setting(0.5), "true"),
        (Setting(0.5), None),
        (Setting("adam"), 3),
        (Setting(()), [1]),
        (Setting(()), "[1]"),
    ],
)
def test_what_is_of_another_kind(setting: Setting, given: object) -> None:
    with pytest.raises(InputError, match=r"^got row\.name=.{1,60}; expected .*\.$"):
        value_from("row", "name", setting, given)


def test_where_rows_are_built_text_is_not_read() -> None:
    """A stored run with the text "False", which counted as true, is refused: it cannot go on as false."""
    space = OPTIMIZERS["genie"].space
    assert checked("genie", space, defaults(space)) == defaults(space)
    with pytest.raises(InputError, match=r"^got genie\.precondition='False'; expected true or false\.$"):
        checked("genie", space, {"precondition": "False"})
