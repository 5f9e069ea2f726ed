"""What a run is: its configuration, its identity, what its fields can be, and how they are typed."""

from __future__ import annotations

import argparse
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from genie_dg.arguments import add_fields, infos, typed_fields
from genie_dg.check import InputError
from genie_dg.runs.config import OMITTED, RunConfig, canonical, from_mapping, oracle_rule
from genie_dg.runs.decode import read_launch
from genie_dg.runs.folder import note_launch

OTHER: dict[str, Any] = {
    "dataset": "other",
    "test_domains": (1,),
    "algorithm_settings": {"a": 1},
    "optimizer_settings": {"a": 1},
    "average_of": ("a",),
    "freeze_statistics": False,
}


def another_value(name: str) -> Any:
    """A value of a field that is not its default."""
    if name in OTHER:
        return OTHER[name]
    info, default = infos(RunConfig).get(name), getattr(RunConfig, name)
    if info is not None and info.choices:
        return next(choice for choice in info.choices if choice != default)
    if isinstance(default, bool):
        return not default
    return default + (1 if isinstance(default, int) else 0.5) if not isinstance(default, str) else "other"


def test_identities_are_those_of_the_first_runs() -> None:
    """Computed before most fields existed: a configuration without them keeps its name."""
    assert RunConfig("digits", (0,)).run_id == RunConfig("digits", (0,), **OMITTED).run_id == "99cc5b13f5cb234a"
    config = RunConfig(
        "PACS",
        (2, 0),
        algorithm="IRM",
        optimizer="adam",
        optimizer_settings={"lr": 0.1},
        protocol="genie-paper/changed",
        trial_seed=2,
        hparams_seed=3,
        swad=True,
    )
    assert config.run_id == "344e6f1441ccd311"
    assert not OMITTED.keys() & json.loads(canonical(config)).keys()


def test_every_field_is_part_of_the_identity() -> None:
    ids = {RunConfig("digits", (0,)).run_id}
    for f in fields(RunConfig):
        config = RunConfig(**{"dataset": "digits", "test_domains": (0,), f.name: another_value(f.name)})
        assert from_mapping(json.loads(canonical(config))) == config
        ids.add(config.run_id)
    assert len(ids) == 1 + len(fields(RunConfig))


def test_one_and_one_point_zero_are_one_run() -> None:
    assert RunConfig("digits", (0,), clip=1).run_id == RunConfig("digits", (0,), clip=1.0).run_id  # TOML has 1


def test_test_domains_are_a_set() -> None:
    assert RunConfig("digits", (2, 0, 2)) == RunConfig("digits", [0, 2])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, r"^got steps=0; expected a whole number of at least 1\.$"),
        ({"steps": True}, r"^got steps=True; "),
        ({"steps": 10**30}, r"^got steps=1000.*; expected a whole number from 1 to"),
        ({"image_size": 10**30}, r"^got image_size=1000.*; expected a whole number from 1 to 32768\.$"),
        ({"batch_size": "8"}, r"^got batch_size='8'; "),
        ({"trial_seed": -1}, r"^got trial_seed=-1; expected a whole number of at least 0\.$"),
        ({"dropout": 1.0}, r"^got dropout=1\.0; expected a number of at least 0 and below 1\.$"),
        ({"clip": float("inf")}, r"^got clip=inf; expected a number of at least 0 and at most 1e\+09\.$"),
        ({"pretrained": "no"}, r"^got pretrained='no'; expected true or false\.$"),
        ({"freeze_statistics": 1}, r"^got freeze_statistics=1; expected true or false\.$"),
        ({"backbone": 3}, r"^got backbone=3; expected text\.$"),
        ({"precision": "float23"}, r"; did you mean 'float32'\?$"),
        ({"oracle": "first"}, r"^got oracle='first'; expected last or best\.$"),
        ({"class_weights": "inverse"}, r"^got class_weights='inverse'; expected balanced\.$"),
        ({"warmup": 10, "steps": 10}, "fewer steps of warm-up"),
    ],
)
def test_what_no_run_can_have(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        RunConfig("digits", (0,), **changes)


def test_from_a_mapping() -> None:
    assert from_mapping({"dataset": "digits", "test_domains": [1, 0]}) == RunConfig("digits", (0, 1))
    with pytest.raises(InputError, match=r"^A run has no 'batch', 'step'; its keys are algorithm, "):
        from_mapping({"dataset": "digits", "test_domains": [0], "step": 1, "batch": 2})
    with pytest.raises(InputError, match="No test domain"):
        from_mapping({"dataset": "digits"})


def test_a_configuration_that_json_cannot_hold_has_no_identity() -> None:
    with pytest.raises(ValueError, match="JSON"):
        canonical(RunConfig("digits", (0,), optimizer_settings={"lr": float("nan")}))


@pytest.mark.parametrize(
    ("protocol", "oracle", "rule"),
    [
        ("domainbed/changed", "", "last"),
        ("genie-paper", "", "best"),
        ("genie-paper/changed", "", "best"),
        ("genie-paper2", "", "last"),
        ("mine/changed", "best", "best"),
        ("genie-paper", "last", "last"),
    ],
)
def test_the_rule_of_the_oracle(protocol: str, oracle: str, rule: str) -> None:
    assert oracle_rule(protocol, oracle) == rule


@pytest.mark.parametrize("verb", ["train", "lr-find", "fit"])
def test_every_flag_sets_its_field_and_nothing_else(verb: str) -> None:
    parser = argparse.ArgumentParser()
    add_fields(parser, RunConfig, verb)
    assert typed_fields(parser.parse_args([]), RunConfig) == {}
    for action in parser._actions[1:]:
        value = not getattr(RunConfig, action.dest) if action.nargs == 0 else another_value(action.dest)
        words = [action.option_strings[-1], *([] if action.nargs == 0 else [str(value)])]
        assert typed_fields(parser.parse_args(words), RunConfig) == {action.dest: value}
        assert action.help


def test_a_verb_may_have_another_default() -> None:
    parser = argparse.ArgumentParser()
    add_fields(parser, RunConfig, "train", steps=7, fast=True)
    assert "(default: 7)" in parser.format_help()
    assert typed_fields(parser.parse_args(["--exact"]), RunConfig) == {"fast": False}


def test_what_was_typed_is_kept(tmp_path: Path) -> None:
    assert read_launch(tmp_path) == ()
    note_launch(tmp_path / "run", ["genie-dg", "train", "my data"])
    assert read_launch(tmp_path / "run") == ("genie-dg", "train", "my data")
    for text in ("{", "[]", '{"command": "train"}', '{"command": [1]}'):
        (tmp_path / "launch.json").write_text(text)
        assert read_launch(tmp_path) == ()
