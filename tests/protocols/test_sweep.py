"""Sweeps: the runs they stand for, and what is refused before any work."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from genie_dg.algorithms.registry import ALGORITHMS
from genie_dg.bench.options import RunOptions
from genie_dg.bench.sweep import plan
from genie_dg.check import InputError
from genie_dg.data.published.catalog import PUBLISHED
from genie_dg.data.registry import SETS
from genie_dg.optim.registry import OPTIMIZERS
from genie_dg.protocols import sweep as sweep_module
from genie_dg.protocols.domainbed import DOMAINBED
from genie_dg.protocols.genie_paper import GENIE_PAPER
from genie_dg.protocols.registry import load_protocol
from genie_dg.protocols.sweep import SWEPT, Facts, SweepConfig, expand, load_sweep, sweep_from
from genie_dg.runs.config import RunConfig, oracle_rule
from tests.runs.test_config import another_value

DOMAINS = {name: list(row.domains) for name, row in PUBLISHED.items()}
DOMAINS |= {"digits": ["0 degrees", "15 degrees", "30 degrees"], "two": ["a", "b"]}
FACTS = Facts(DOMAINS, ALGORITHMS, OPTIMIZERS, ("digits",), ("cnn", "mlp"), ("PACS",))
BASE: dict[str, Any] = {
    "name": "s",
    "protocol": "domainbed",
    "datasets": ["PACS"],
    "algorithms": ["ERM"],
    "optimizers": ["adam"],
}
BASE |= {"hparams": 1, "trials": 1}


def runs(**changes: Any) -> list[RunConfig]:
    return expand(sweep_from({**BASE, **changes}), DOMAINBED, FACTS)


@pytest.mark.parametrize(("task", "count"), [("leave-one-out", 1320), ("both", 3660)])
def test_runs_of_an_algorithm_on_the_five_sets(task: str, count: int) -> None:
    sweep = SweepConfig("full", "domainbed", list(PUBLISHED), ["ERM"], ["adam"], task)
    found = expand(sweep, DOMAINBED, FACTS)
    assert len(found) == count
    assert len({run.run_id for run in found}) == count
    assert found == expand(sweep, DOMAINBED, FACTS)


def test_a_run_has_what_the_protocol_says() -> None:
    first, *_ = expand(sweep_from({**BASE, "hparams": [9], "trials": [2]}), GENIE_PAPER, FACTS)
    for name in ("eval_augment", "backbone", "pretrained", "freeze_statistics", "image_size"):
        assert getattr(first, name) == getattr(GENIE_PAPER, name)
    assert (first.dataset, first.test_domains) == ("PACS", (0,))
    assert (first.algorithm, first.optimizer) == ("ERM", "adam")
    assert (first.steps, first.checkpoint_every, first.protocol) == (5001, 200, "genie-paper")
    assert (first.hparams_seed, first.trial_seed, first.batch_size, first.dropout) == (9, 2, 29, 0.0)
    assert first.optimizer_settings.keys() == {"lr", "weight_decay"}
    small = runs(datasets=["digits"])[0]
    assert (small.backbone, small.pretrained, small.freeze_statistics) == ("cnn", False, None)
    assert (small.batch_size, small.checkpoint_every, small.eval_augment) == (64, 100, "train")


def test_the_order_is_draws_trials_sets_algorithms_optimizers_domains() -> None:
    found = runs(
        datasets=["VLCS", "pacs"], algorithms=["irm", "ERM"], optimizers=["genie", "Adam"], hparams=2, trials=2
    )
    names = ["VLCS", "PACS"], ["IRM", "ERM"], ["genie", "adam"]
    keys = []
    for run in found:
        places = [
            some.index(x) for some, x in zip(names, (run.dataset, run.algorithm, run.optimizer), strict=True)
        ]
        keys.append((run.hparams_seed, run.trial_seed, *places, run.test_domains))
    assert keys == sorted(keys)
    assert len(set(keys)) == len(found) == 2 * 2 * 2 * 2 * 2 * 4


def test_nothing_is_run_twice() -> None:
    names = {"datasets": ["PACS", "pacs"], "algorithms": ["ERM", "erm"], "optimizers": ["adam", "ADAM"]}
    domains = [["sketch", 0], [3, "art_painting"], ["photo", "photo"]]
    found = runs(**names, test_domains=domains, hparams=[3, 3], trials=[1, 1])
    assert [(run.test_domains, run.hparams_seed, run.trial_seed) for run in found] == [
        ((0, 3), 3, 1),
        ((2,), 3, 1),
    ]


@pytest.mark.parametrize("name", SWEPT)
def test_every_override_wins_over_protocol_and_draw(name: str) -> None:
    value: Any = {"freeze_statistics": False, "backbone": "resnet18"}.get(name) or another_value(name)
    for run in runs(overrides={name: value}, hparams=2):
        assert getattr(run, name) == value
        assert run.protocol == "domainbed/changed"


def test_what_an_override_brings_with_it() -> None:
    assert {run.eval_augment for run in runs(overrides={"augment": False})} == {"none"}
    scratch = runs(overrides={"pretrained": False})[0]
    assert (scratch.pretrained, scratch.freeze_statistics) == (False, None)
    assert runs(overrides={"pretrained": False, "freeze_statistics": True})[0].freeze_statistics is True


def test_fast_and_threads_are_part_of_a_run_and_no_change_of_the_protocol() -> None:
    usual, slow, two = (
        runs(datasets=["PACS", "digits"], **changes) for changes in ({}, {"fast": False}, {"threads": 2})
    )
    assert {(run.dataset, run.fast, run.threads) for run in usual} == {("PACS", True, 1), ("digits", False, 1)}
    assert {run.fast for run in slow} == {False}
    assert [replace(run, threads=1) for run in two] == usual
    assert {run.protocol for run in (*usual, *slow, *two)} == {"domainbed"}


def test_fixed_settings_win_over_the_draw() -> None:
    found = runs(
        algorithms=["IRM", "ERM"],
        optimizers=["sam", "adam"],
        hparams=[4],
        algorithm_settings={"irm": {"irm_lambda": 7}},
        optimizer_settings={"sam": {"base": "sgd", "lr": 0.1}},
    )
    for run in found:
        assert (run.algorithm_settings.get("irm_lambda") == 7) == (run.algorithm == "IRM")
        assert (run.optimizer_settings["lr"] == 0.1) == (run.optimizer == "sam")
    sam = next(run for run in found if run.optimizer == "sam").optimizer_settings
    assert sam["base"] == "sgd"
    assert sam.keys() == {"base", "lr", "weight_decay", "rho"}


def test_numbers_of_draws_and_trials_are_the_protocols_unless_told(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('name = "mine"\nbase = "domainbed"\nhparams = 4\ntrials = 2\n')
    profile = load_protocol(tmp_path / "mine.toml")
    found = expand(SweepConfig("s", "mine.toml", ["PACS"], ["ERM"], ["adam"]), profile, FACTS)
    assert len(found) == 4 * 2 * 4
    assert {run.protocol for run in found} == {"mine"}


def test_the_oracles_rule_goes_into_a_run_where_the_protocols_name_does_not_say_it(tmp_path: Path) -> None:
    def rules(base: str, oracle: str, **changes: Any) -> set[tuple[str, str]]:
        (tmp_path / "mine.toml").write_text(f'name = "mine"\nbase = "{base}"\n{oracle}\n')
        profile = load_protocol(tmp_path / "mine.toml")
        return {(run.protocol, run.oracle) for run in expand(sweep_from({**BASE, **changes}), profile, FACTS)}

    assert rules("domainbed", 'oracle = "best"') == {("mine", "best")}
    assert rules("domainbed", 'oracle = "best"', overrides={"steps": 5}) == {("mine/changed", "best")}
    assert rules("genie-paper", "") == {("mine", "best")}
    assert rules("genie-paper", 'oracle = "last"') == rules("domainbed", "") == {("mine", "")}
    for profile in (DOMAINBED, GENIE_PAPER):
        for changes in ({}, {"overrides": {"steps": 5}}):
            found = expand(sweep_from({**BASE, **changes}), profile, FACTS)
            assert {run.oracle for run in found} == {""}  # so runs from before keep their identity
            assert {oracle_rule(run.protocol, run.oracle) for run in found} == {profile.oracle}


def test_embedded_sets_get_the_small_network(tmp_path: Path) -> None:
    names = ["digits", "coloured-digits", "styleshapes"]
    assert set(names) <= set(SETS)
    path = tmp_path / "sweep.toml"
    path.write_text(
        f'name = "s"\nprotocol = "domainbed"\ndatasets = {names}\nalgorithms = ["ERM"]\n'
        'optimizers = ["adam"]\nhparams = 1\ntrials = 1\n'
    )
    jobs = plan(path, RunOptions(out=str(tmp_path / "runs"))).jobs
    assert {job.data for job in jobs} == set(names)
    for job in jobs:
        run = job.config
        assert (run.backbone, run.pretrained, run.freeze_statistics) == ("cnn", False, None), run.dataset
        assert (run.checkpoint_every, run.batch_size) == (100, 64), run.dataset
        assert run.optimizer_settings == {"lr": 1e-3, "weight_decay": 0.0}, run.dataset


def test_a_file_is_read(tmp_path: Path) -> None:
    example = re.sub(r"^    ", "", str(sweep_module.__doc__).split("::\n", 1)[1], flags=re.M)
    (tmp_path / "sweep.toml").write_text(example)
    sweep = load_sweep(tmp_path / "sweep.toml")
    assert (sweep.name, sweep.optimizers, sweep.plugins) == (
        "pacs-optimizers",
        ["adam", "sam", "genie"],
        ["rows.py"],
    )
    assert (sweep.hparams, sweep.trials, sweep.overrides) == (20, 3, {"steps": 1001})
    assert sweep.optimizer_settings == {"sam": {"base": "sgd"}}
    assert len(expand(sweep, DOMAINBED, FACTS)) == 720


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trial": 1}, r"^The sweep has no 'trial'; .*; did you mean 'trials'\?$"),
        ({"name": "a/b"}, r"^The sweep has name = 'a/b'; use letters"),
        ({"algorithms": ["IRN"]}, r"^got algorithm='IRN'; expected .*; did you mean 'IRM'\?$"),
        ({"test_domains": "leave-one-in"}, r"; did you mean 'leave-one-out'\?$"),
        ({"test_domains": [[True]]}, r"; \[0\]\[0\] of it must be a whole number or text\.$"),
        ({"test_domains": [["sketsh"]]}, r"^PACS has no domain 'sketsh'; .*; did you mean 'sketch'\?$"),
        ({"hparams": 0}, r"^The sweep has hparams = 0; it must be a whole number >= 1\.$"),
        ({"hparams": [1, -1]}, r"^The sweep has hparams = \[1, -1\]; \[1\] of it must be a whole number >= 0"),
        ({"threads": 0}, r"^got threads=0; expected a whole number of at least 1\.$"),
        ({"overrides": {"step": 3}}, r"^\[overrides\] of a sweep has no 'step'; .*; did you mean 'steps'\?$"),
        ({"overrides": {"dropout": float("nan")}}, r"^got dropout=nan; expected a number of at least 0 and"),
        ({"overrides": {"backbone": "cnn"}}, r"'cnn' has none; add pretrained = false to \[overrides\]\.$"),
        ({"optimizer_settings": {"sgd": {"lr": 1.0}}}, r"that the sweep does not run \(adam\); add 'sgd' to"),
        ({"optimizer_settings": {"adem": {}}}, r"^got optimizer='adem'; expected .*; did you mean 'adam'\?$"),
        ({"optimizer_settings": {"adam": {"beta_1": 1}}}, r"^adam has no setting 'beta_1'; .* mean 'beta1'\?$"),
        ({"optimizer_settings": {"adam": {"lr": "fast"}}}, r"^got adam\.lr='fast'; expected a finite"),
        ({"algorithm_settings": {"ERM": {"a": 1}}}, r"^ERM has no setting 'a'; its settings are none\.$"),
        ({"columns": {"PAC": {}}}, r"^got columns='PAC'; expected PACS; did you mean 'PACS'\?$"),
        ({"columns": {"PACS": {"domian": "x"}}}, "has no 'domian'.*did you mean 'domain'"),
        ({"columns": {"PACS": {"domain": 3}}}, r"; \.domain of it must be text\.$"),
    ],
)
def test_what_is_refused_before_any_work(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        runs(**changes)


def test_a_table_has_its_own_network_and_the_space_of_small_pictures() -> None:
    facts = replace(FACTS, tables={"two": "mlp"})
    (first, *_) = expand(sweep_from({**BASE, "datasets": ["two"]}), DOMAINBED, facts)
    assert (first.backbone, first.pretrained, first.batch_size, first.fast) == ("mlp", False, 64, False)
    assert first.optimizer_settings["lr"] == 1e-3
    changed = sweep_from({**BASE, "datasets": ["two"], "overrides": {"backbone": "cnn"}})
    assert expand(changed, DOMAINBED, facts)[0].backbone == "cnn"


@pytest.mark.parametrize("key", ["name", "optimizers"])
def test_what_must_be_said(key: str) -> None:
    with pytest.raises(InputError, match=f"^The sweep does not say '{key}'; add it\\.$"):
        sweep_from({other: value for other, value in BASE.items() if other != key})
