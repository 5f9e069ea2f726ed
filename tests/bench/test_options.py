"""Every option reaches the process that trains, has a flag where it should, and is no part of what a run is."""

from __future__ import annotations

import argparse
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from genie_dg.arguments import infos
from genie_dg.bench.options import RunOptions, add_flags, columns_from, options_from
from genie_dg.cli.main import build_parser
from genie_dg.data.columns import Columns
from genie_dg.runs.config import RunConfig

CONFIG = RunConfig(
    "digits", (0, 2), algorithm_settings={"irm_lambda": 10}, optimizer_settings={"lr": 0.1}, oracle="best"
)
OTHER: dict[type, Any] = {str: "other", bool: True, int: 3, tuple: ("a.py", "b.py")}
CHANGED = {one.name: OTHER[type(one.default)] for one in fields(RunOptions)} | {
    "evaluate": "all",
    "keep": "last",
}
"""For every field a value that is not its default."""

COMMANDS = {
    "train": ["train", "digits", "--test-domain", "0"],
    "sweep": ["sweep", "sweep.toml"],
    "diwa": ["diwa", "digits"],
    "lr-find": ["lr-find", "digits", "--test-domain", "0"],
}


def verbs_of(name: str) -> tuple[str, ...]:
    return infos(RunOptions)[name].verbs


def words_for(name: str) -> list[str]:
    """A flag as it is typed, for the value in `CHANGED`."""
    value, flag = CHANGED[name], f"--{name.replace('_', '-')}"
    if value is True:
        return [flag]
    values = value if isinstance(value, tuple) else (value,)
    return [word for one in values for word in (flag, str(one))]


@pytest.mark.parametrize(
    ("verb", "name"), [(v, name) for name in CHANGED for v in verbs_of(name) if v in COMMANDS]
)
def test_every_option_has_a_flag_that_sets_it_and_nothing_else(verb: str, name: str) -> None:
    plain = options_from(build_parser().parse_args(COMMANDS[verb]))
    typed = options_from(build_parser().parse_args([*COMMANDS[verb], *words_for(name)]))
    assert plain == RunOptions()
    expected = tuple(str(Path(x).resolve()) for x in CHANGED[name]) if name == "plugin" else CHANGED[name]
    assert typed == replace(plain, **{name: expected})


@pytest.mark.parametrize("words", [["fit", "a"], ["data", "verify", "a"], ["evaluate", "model.pt", "a"]])
def test_other_commands_take_the_columns_of_a_table(words: list[str]) -> None:
    assert columns_from(build_parser().parse_args(words)) == Columns()
    flags = ["--domain-column", "site", "--label-column", "y", "--image-column", "x", "--ignore-column", "id"]
    assert columns_from(build_parser().parse_args([*words, *flags])) == Columns("site", "y", "x", ("id",))


@pytest.mark.parametrize("verb", COMMANDS)
def test_the_flags_are_made_from_the_fields_alone(verb: str) -> None:
    parser = argparse.ArgumentParser(add_help=False)
    add_flags(parser, verb)
    flags = {action.dest for action in parser._actions}
    assert flags == {name for name in CHANGED if verb in verbs_of(name)}
    assert all(action.help for action in parser._actions)
    typed = set(vars(build_parser().parse_args(COMMANDS[verb])))
    assert typed & set(CHANGED) == flags


def test_watches_and_trackers_are_words_between_commas() -> None:
    assert RunOptions(watch="updates, osgr").watches == ("updates", "osgr")
    assert RunOptions(track="mlflow,wandb").tracks == ("mlflow", "wandb")
    assert RunOptions(watch=" , ").watches == RunOptions().watches == RunOptions().tracks == ()
