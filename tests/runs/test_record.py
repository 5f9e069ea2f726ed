"""What a run is: its configuration, its identity, the rule of the oracle, and the rows of its records."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genie_dg.check import InputError
from genie_dg.runs.config import LATER, TRAINING, RunConfig, canonical, from_mapping, oracle_rule
from genie_dg.runs.record import Record, record_from

LINE = {"step": 5, "epoch": 0.5, "loss": 1.5, "validation_loss": None, "in_acc": [0.5, 0.25], "out_acc": [1, 0]}


def test_identities_are_those_of_the_first_runs() -> None:
    """Computed before ``oracle`` became a field: a configuration without it keeps its name."""
    assert RunConfig("digits", (0,)).run_id == "99cc5b13f5cb234a"
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
    assert "oracle" not in canonical(config)


def test_later_fields_are_part_of_the_identity_where_they_say_something() -> None:
    plain, best, last = (RunConfig("digits", (0,), oracle=rule) for rule in ("", "best", "last"))
    assert len({plain.run_id, best.run_id, last.run_id}) == 3
    assert '"oracle":"best"' in canonical(best)
    assert from_mapping(json.loads(canonical(best))) == best
    assert {name: getattr(plain, name) for name in LATER} == LATER


def test_every_field_is_part_of_the_identity() -> None:
    other: dict[str, Any] = {
        "dataset": "other",
        "test_domains": (1,),
        "pretrained": True,
        "freeze_statistics": False,
        "augment": False,
        "swad": True,
        "precision": "bfloat16",
        "eval_augment": "train",
        "oracle": "best",
        "dropout": 0.5,
        "schedule": "cosine",
        "clip": 1.0,
        "label_smoothing": 0.1,
        "class_weights": "balanced",
        "algorithm_settings": {"a": 1},
        "optimizer_settings": {"a": 1},
    }
    usual = RunConfig("digits", (0,))
    ids = {usual.run_id}
    for f in fields(RunConfig):
        value = getattr(usual, f.name)
        changed = other.get(f.name, value + 1 if isinstance(value, int) else "other")
        changed = not value if isinstance(value, bool) else changed
        ids.add(RunConfig(**{"dataset": "digits", "test_domains": (0,), f.name: changed}).run_id)
    assert len(ids) == 1 + len(fields(RunConfig))


def test_training_settings_that_are_off_leave_the_identity_as_it_was() -> None:
    """The digits are those of a run from before these settings existed."""
    assert RunConfig("digits", (0,), **TRAINING).run_id == "99cc5b13f5cb234a"
    assert RunConfig("digits", (0,), clip=1).run_id == RunConfig("digits", (0,), clip=1.0).run_id  # TOML has 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schedule": "cos"}, "did you mean 'cosine'"),
        ({"class_weights": "inverse"}, "expected balanced"),
        ({"warmup": 10, "steps": 10}, "fewer steps of warm-up"),
        ({"warmup": -1}, "warmup"),
        ({"clip": float("inf")}, "clip"),
        ({"label_smoothing": 1.0}, "label_smoothing"),
        ({"freeze": 1.5}, "freeze"),
        ({"early_stop": -1}, "early_stop"),
    ],
)
def test_training_settings_that_cannot_be_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        RunConfig("digits", (0,), **changes)


def test_test_domains_are_a_set() -> None:
    config = RunConfig("digits", (2, 0, 2))
    assert config.test_domains == (0, 2)
    assert config == RunConfig("digits", [0, 2])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, r"^got steps=0; expected a whole number of at least 1\.$"),
        ({"steps": True}, r"^got steps=True; "),
        ({"checkpoint_every": 1.5}, r"^got checkpoint_every=1\.5; "),
        ({"image_size": -1}, r"^got image_size=-1; "),
        ({"batch_size": "8"}, r"^got batch_size='8'; "),
        ({"dropout": 1.0}, r"^got dropout=1\.0; expected a number of at least 0 and below 1\.$"),
        ({"precision": "float23"}, r"; did you mean 'float32'\?$"),
        ({"eval_augment": "trian"}, r"; did you mean 'train'\?$"),
        ({"oracle": "first"}, r"^got oracle='first'; expected last or best\.$"),
    ],
)
def test_what_no_run_can_have(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        RunConfig(**{"dataset": "digits", "test_domains": (0,), **changes})


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
        ("domainbed", "", "last"),
        ("domainbed/changed", "", "last"),
        ("genie-paper", "", "best"),
        ("genie-paper/changed", "", "best"),
        ("genie-paper2", "", "last"),
        ("custom", "", "last"),
        ("mine", "best", "best"),
        ("mine/changed", "best", "best"),
        ("genie-paper", "last", "last"),
    ],
)
def test_the_rule_of_the_oracle(protocol: str, oracle: str, rule: str) -> None:
    assert oracle_rule(protocol, oracle) == rule


def test_a_record_knows_its_means() -> None:
    record = record_from({**LINE, "in_acc": [0.5, 0.25, 1.0], "out_acc": [0.0, 0.5, 0.75]}, 3)
    assert record.validation([1]) == 0.375
    assert record.validation([0, 1]) == 0.75
    assert record.test([1]) == 0.25
    assert record.test([0, 2]) == 0.75


@given(
    st.integers(0, 2**53 - 1),
    st.none() | st.floats(allow_nan=False, allow_infinity=False),
    st.lists(st.floats(0, 1), min_size=2, max_size=5),
    st.booleans(),
)
def test_a_record_comes_back_from_its_line(
    step: int, loss: float | None, accuracies: list[float], swad: bool
) -> None:
    record = Record(step, loss, loss, None, tuple(accuracies), tuple(reversed(accuracies)), swad)
    assert record_from(json.loads(json.dumps(record.to_json())), len(accuracies)) == record
    assert ("swad" in record.to_json()) == swad


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"step": None}, r"^got step=None; expected a whole number from 0 to "),
        ({"step": 2**53}, r"^got step=9007199254740992; "),
        ({"step": 1.0}, r"^got step=1\.0; "),
        ({"step": True}, r"^got step=True; "),
        ({"loss": "1"}, r"^got loss='1'; expected a number\.$"),
        ({"loss": True}, r"^got loss=True; "),
        ({"loss": float("nan")}, r"^got loss=nan; "),
        ({"epoch": float("inf")}, r"^got epoch=inf; "),
        ({"validation_loss": 10**400}, r"^got validation_loss=1000"),
        ({"in_acc": None}, r"^got in_acc=None; expected a list of 2 accuracies\.$"),
        ({"in_acc": [0.5]}, r"^got in_acc=\[0\.5\]; "),
        ({"in_acc": "ab"}, r"^got in_acc='ab'; "),
        (
            {"out_acc": [0.5, 1.5]},
            r"^got an accuracy in out_acc=1\.5; expected a number of at least 0 and at most 1",
        ),
        ({"out_acc": [0.5, None]}, r"^got an accuracy in out_acc=None; "),
        ({"out_acc": [0.5, float("nan")]}, r"^got an accuracy in out_acc=nan; "),
    ],
)
def test_what_is_not_a_record(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        record_from({**LINE, **changes}, 2)


def test_losses_that_are_not_finite_are_kept_where_a_run_goes_on() -> None:
    line = {**LINE, "loss": float("inf"), "validation_loss": float("nan")}
    record = record_from(line, 2, finite=False)
    assert record.loss == float("inf")
    assert str(record.validation_loss) == "nan"
    for changes in ({"loss": "1"}, {"loss": True}, {"in_acc": [float("nan"), 0.5]}):
        with pytest.raises(InputError):
            record_from({**LINE, **changes}, 2, finite=False)


def test_what_is_missing_is_none() -> None:
    record = record_from({"step": 0, "in_acc": [0, 1], "out_acc": (0.5, 0.5)}, 2)
    assert (record.epoch, record.loss, record.validation_loss, record.swad) == (None, None, None, False)
    assert all(type(value) is float for value in record.in_acc)


def test_only_accuracies_that_nothing_reads_may_be_missing() -> None:
    line = {"step": 3, "in_acc": [None, 0.5], "out_acc": [0.25, 0.75]}
    record = record_from(line, 2, test_domains=(1,))
    assert record.in_acc == (None, 0.5)
    assert (record.test((1,)), record.validation((1,))) == (0.5, 0.25)
    assert record_from(record.to_json(), 2) == record
    for wrong in ({"test_domains": (0,)}, {"test_domains": (0, 1)}):
        with pytest.raises(InputError, match="an accuracy in in_acc"):
            record_from(line, 2, **wrong)
    with pytest.raises(InputError, match="an accuracy in out_acc"):
        record_from({**line, "out_acc": [None, 1.0]}, 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pretrained": "no"}, r"^got pretrained='no'; expected true or false\.$"),
        ({"swad": 1}, r"^got swad=1; expected true or false\.$"),
        ({"freeze_statistics": "yes"}, r"^got freeze_statistics='yes'; expected true or false\.$"),
        ({"image_size": 10**30}, r"^got image_size=1000.*; expected a whole number from 1 to 32768\.$"),
        ({"steps": 10**30}, r"^got steps=1000.*; expected a whole number from 1 to"),
        ({"batch_size": 0}, r"^got batch_size=0; expected a whole number of at least 1\.$"),
        ({"trial_seed": -1}, r"^got trial_seed=-1; expected a whole number of at least 0\.$"),
        ({"trial_seed": 10**30}, r"^got trial_seed=1000.*; expected a whole number from 0 to"),
    ],
)
def test_values_that_no_run_can_have(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        RunConfig("digits", (0,), **changes)
