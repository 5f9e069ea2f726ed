"""Sweeps: the runs they stand for, and what is refused before any work."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
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
from genie_dg.protocols.sweep import Facts, SweepConfig, expand, load_sweep, sweep_from
from genie_dg.registry import with_defaults
from genie_dg.runs.config import RunConfig, oracle_rule
from genie_dg.search_space import defaults

FACTS = Facts(
    {
        **{name: list(row.domains) for name, row in PUBLISHED.items()},
        "digits": ["0 degrees", "15 degrees", "30 degrees"],
        "two": ["a", "b"],
    },
    ALGORITHMS,
    OPTIMIZERS,
    ("digits",),
    ("cnn", "mlp"),
    ("PACS",),
)
BASE = {
    "name": "s",
    "protocol": "domainbed",
    "datasets": ["PACS"],
    "algorithms": ["ERM"],
    "optimizers": ["adam"],
    "hparams": 1,
    "trials": 1,
}


def runs(**changes: Any) -> list[RunConfig]:
    return expand(sweep_from({**BASE, **changes}), DOMAINBED, FACTS)


def test_pictures_in_files_are_fast_unless_the_sweep_says_otherwise() -> None:
    assert {(run.dataset, run.fast) for run in runs(datasets=["PACS", "digits"])} == {
        ("PACS", True),
        ("digits", False),
    }
    assert not any(run.fast for run in runs(datasets=["PACS", "digits"], fast=False))
    assert {run.protocol for run in runs()} == {"domainbed"}  # no change of the protocol


def test_docstring_examples() -> None:
    failed, tried = doctest.testmod(sweep_module)
    assert tried > 0
    assert failed == 0


@pytest.mark.parametrize(("task", "count"), [("leave-one-out", 1320), ("both", 3660)])
def test_runs_of_an_algorithm_on_the_five_sets(task: str, count: int) -> None:
    sweep = SweepConfig("full", "domainbed", list(PUBLISHED), ["ERM"], ["adam"], task)
    found = expand(sweep, DOMAINBED, FACTS)
    assert len(found) == count
    assert len({run.run_id for run in found}) == count
    assert found == expand(sweep, DOMAINBED, FACTS)


def test_ten_optimizers_are_ten_times_as_many() -> None:
    sweep = SweepConfig("full", "domainbed", list(PUBLISHED), ["ERM"], list(OPTIMIZERS)[:10])
    assert len(expand(sweep, DOMAINBED, FACTS)) == 13_200


def test_a_run_has_what_the_protocol_says() -> None:
    first, *_ = expand(sweep_from({**BASE, "hparams": [9], "trials": [2]}), GENIE_PAPER, FACTS)
    settings = dict(first.optimizer_settings)
    assert first == RunConfig(
        "PACS",
        (0,),
        algorithm="ERM",
        optimizer="adam",
        backbone="resnet50",
        optimizer_settings=settings,
        batch_size=29,
        dropout=0.0,
        pretrained=True,
        freeze_statistics=True,
        image_size=224,
        augment=True,
        eval_augment="train-in",
        steps=5001,
        checkpoint_every=200,
        trial_seed=2,
        hparams_seed=9,
        protocol="genie-paper",
        fast=True,
    )
    assert settings.keys() == {"lr", "weight_decay"}
    small = runs(datasets=["digits"])[0]
    assert (small.backbone, small.pretrained, small.freeze_statistics) == ("cnn", False, None)
    assert (small.batch_size, small.checkpoint_every, small.eval_augment) == (64, 100, "train")


def test_the_order_is_draws_trials_sets_algorithms_optimizers_domains() -> None:
    found = runs(
        datasets=["VLCS", "pacs"], algorithms=["irm", "ERM"], optimizers=["genie", "Adam"], hparams=2, trials=2
    )
    keys = [
        (
            run.hparams_seed,
            run.trial_seed,
            ["VLCS", "PACS"].index(run.dataset),
            ["IRM", "ERM"].index(run.algorithm),
            ["genie", "adam"].index(run.optimizer),
            run.test_domains,
        )
        for run in found
    ]
    assert keys == sorted(keys)
    assert len(set(keys)) == len(found) == 2 * 2 * 2 * 2 * 2 * 4


def test_nothing_is_run_twice() -> None:
    found = runs(
        datasets=["PACS", "pacs"],
        algorithms=["ERM", "erm"],
        optimizers=["adam", "ADAM"],
        test_domains=[["sketch", 0], [3, "art_painting"], ["photo", "photo"]],
        hparams=[3, 3],
        trials=[1, 1],
    )
    assert [(run.test_domains, run.hparams_seed, run.trial_seed) for run in found] == [
        ((0, 3), 3, 1),
        ((2,), 3, 1),
    ]


def test_overrides_win_over_protocol_and_draw() -> None:
    overrides = {
        "steps": 11,
        "checkpoint_every": 5,
        "backbone": "resnet18",
        "image_size": 64,
        "batch_size": 3,
        "dropout": 0.25,
        "swad": True,
        "precision": "bfloat16",
        "augment": False,
    }
    for run in runs(overrides=overrides, hparams=3, trials=2):
        assert {key: getattr(run, key) for key in overrides} == overrides
        assert (run.pretrained, run.eval_augment) == (True, "none")
    scratch = runs(overrides={"pretrained": False})[0]
    assert (scratch.pretrained, scratch.freeze_statistics) == (False, None)
    assert runs(overrides={"pretrained": False, "freeze_statistics": True})[0].freeze_statistics is True


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


def test_all_cells_expand_under_both_protocols() -> None:
    sweep = sweep_from({**BASE, "algorithms": list(ALGORITHMS), "optimizers": list(OPTIMIZERS), "hparams": [1]})
    for profile in (DOMAINBED, GENIE_PAPER):
        found = expand(sweep, profile, FACTS)
        assert len(found) == 4 * len(ALGORITHMS) * len(OPTIMIZERS)
        for run in found:
            algorithm, optimizer = ALGORITHMS[run.algorithm], OPTIMIZERS[run.optimizer]
            with_defaults(algorithm.name, defaults(algorithm.space), run.algorithm_settings)
            with_defaults(optimizer.name, defaults(optimizer.space), run.optimizer_settings)


def test_numbers_of_draws_and_trials_are_the_protocols_unless_told(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('name = "mine"\nbase = "domainbed"\nhparams = 4\ntrials = 2\n')
    profile = load_protocol(tmp_path / "mine.toml")
    found = expand(SweepConfig("s", "mine.toml", ["PACS"], ["ERM"], ["adam"]), profile, FACTS)
    assert len(found) == 4 * 2 * 4
    assert {run.protocol for run in found} == {"mine"}
    (tmp_path / "mine.toml").write_text('name = "mine"\nbase = "domainbed"\n[search]\n"adam.lrr" = "fixed"\n')
    with pytest.raises(InputError, match=r"did you mean 'adam\.lr'\?$"):
        expand(
            SweepConfig("s", "mine", ["PACS"], ["ERM"], ["adam"]), load_protocol(tmp_path / "mine.toml"), FACTS
        )


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
    assert sweep == SweepConfig(
        "pacs-optimizers",
        "domainbed",
        ["PACS"],
        ["ERM"],
        ["adam", "sam", "genie"],
        "leave-one-out",
        20,
        3,
        {"steps": 1001},
        {},
        {"sam": {"base": "sgd"}},
        plugins=["rows.py"],
    )
    assert len(expand(sweep, DOMAINBED, FACTS)) == 720
    with pytest.raises(InputError, match=r"none\.toml cannot be read"):
        load_sweep(tmp_path / "none.toml")
    (tmp_path / "sweep.toml").write_bytes(b"name = \xff")
    with pytest.raises(InputError, match=r"sweep\.toml is not TOML"):
        load_sweep(tmp_path / "sweep.toml")


def test_threads_are_part_of_a_run_and_no_change_of_the_protocol() -> None:
    one, two = runs(), runs(threads=2)
    assert {run.threads for run in one} == {1}
    assert [replace(run, threads=1) for run in two] == one
    assert not {run.run_id for run in one} & {run.run_id for run in two}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trial": 1}, r"^The sweep has no 'trial'; .*; did you mean 'trials'\?$"),
        ({"name": "a/b"}, r"^The sweep has name = 'a/b'; use letters"),
        ({"name": 3}, r"^The sweep has name = 3; it must be text\.$"),
        ({"datasets": []}, r"^The sweep has datasets = \[\]; it must be a list of length >= 1\.$"),
        ({"optimizers": "adam"}, r"^The sweep has optimizers = 'adam'; it must be a list"),
        ({"algorithms": [3]}, r"^The sweep has algorithms = \[3\]; "),
        ({"algorithms": ["IRN"]}, r"^got algorithm='IRN'; expected .*; did you mean 'IRM'\?$"),
        ({"test_domains": "leave-one-in"}, r"; did you mean 'leave-one-out'\?$"),
        ({"test_domains": []}, r"^The sweep has test_domains = \[\]; it must be a list of length >= 1\.$"),
        ({"test_domains": [[]]}, r"^The sweep has test_domains = \[\[\]\]; "),
        ({"test_domains": ["sketch"]}, r"^The sweep has test_domains = \['sketch'\]; "),
        ({"test_domains": [[True]]}, r"; \[0\]\[0\] of it must be a whole number or text\.$"),
        ({"test_domains": [["sketsh"]]}, r"^PACS has no domain 'sketsh'; .*; did you mean 'sketch'\?$"),
        ({"hparams": 0}, r"^The sweep has hparams = 0; it must be a whole number >= 1\.$"),
        ({"hparams": []}, r"^The sweep has hparams = \[\]; "),
        ({"hparams": [1, -1]}, r"^The sweep has hparams = \[1, -1\]; \[1\] of it must be a whole number >= 0"),
        ({"trials": 1.5}, r"^The sweep has trials = 1\.5; it must be a whole number or a list\.$"),
        ({"trials": [0, True]}, r"^The sweep has trials = \[0, True\]; "),
        ({"threads": 0}, r"^got threads=0; expected a whole number of at least 1\.$"),
        ({"threads": "2"}, r"^The sweep has threads = '2'; it must be a whole number\.$"),
        ({"overrides": 3}, r"^The sweep has overrides = 3; it must be a table\.$"),
        ({"overrides": {"step": 3}}, r"^\[overrides\] of a sweep has no 'step'; .*; did you mean 'steps'\?$"),
        ({"overrides": {"trial_seed": 3}}, r"^\[overrides\] of a sweep has no 'trial_seed'; "),
        ({"overrides": {"steps": "3"}}, r"^got steps='3'; expected a whole number of at least 1\.$"),
        ({"overrides": {"backbone": 3}}, r"^got backbone=3; expected text\.$"),
        ({"overrides": {"dropout": float("nan")}}, r"^got dropout=nan; expected a number of at least 0 and"),
        ({"overrides": {"schedule": "cosinus"}}, r"; did you mean 'cosine'\?$"),
        ({"overrides": {"backbone": "cnn"}}, r"'cnn' has none; add pretrained = false to \[overrides\]\.$"),
        ({"optimizer_settings": {"adam": 3}}, r"optimizer_settings = .*; \[\.\.\.\] of it must be a table\.$"),
        ({"optimizer_settings": {"sgd": {"lr": 1.0}}}, r"that the sweep does not run \(adam\); add 'sgd' to"),
        ({"optimizer_settings": {"adem": {}}}, r"^got optimizer='adem'; expected .*; did you mean 'adam'\?$"),
        ({"optimizer_settings": {"adam": {"beta_1": 1}}}, r"^adam has no setting 'beta_1'; .* mean 'beta1'\?$"),
        ({"optimizer_settings": {"adam": {"lr": "fast"}}}, r"^got adam\.lr='fast'; expected a finite"),
        ({"algorithm_settings": {"ERM": {"a": 1}}}, r"^ERM has no setting 'a'; its settings are none\.$"),
        ({"columns": {"PAC": {}}}, r"^got columns='PAC'; expected PACS; did you mean 'PACS'\?$"),
        ({"columns": {"PACS": {"domian": "x"}}}, "has no 'domian'.*did you mean 'domain'"),
        ({"columns": {"PACS": {"domain": 3}}}, r"; \.domain of it must be text\.$"),
        ({"columns": {"PACS": {"ignore": "id"}}}, r"; \.ignore of it must be a list\.$"),
        ({"columns": {"PACS": "site"}}, "must be a table"),
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


@pytest.mark.parametrize("key", ["name", "protocol", "datasets", "algorithms", "optimizers"])
def test_what_must_be_said(key: str) -> None:
    with pytest.raises(InputError, match=f"^The sweep does not say '{key}'; add it\\.$"):
        sweep_from({other: value for other, value in BASE.items() if other != key})


def test_integers_fit_numbers_but_not_the_other_way_round() -> None:
    assert runs(optimizer_settings={"adam": {"lr": 1}})[0].optimizer_settings["lr"] == 1
    with pytest.raises(InputError, match=r"^got DANN\.mlp_width=2\.5; expected a whole number\.$"):
        runs(algorithms=["DANN"], algorithm_settings={"DANN": {"mlp_width": 2.5}})


def test_no_torch_is_loaded() -> None:
    code = "import sys, genie_dg.protocols.sweep; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "False"


def test_settings_of_a_file_are_of_the_kind_that_their_row_wants() -> None:
    found = runs(optimizers=["genie"], optimizer_settings={"genie": {"precondition": "no", "seed": 3.0}})[0]
    assert found.optimizer_settings["precondition"] is False
    assert type(found.optimizer_settings["seed"]) is int
    with pytest.raises(InputError, match=r"^got genie\.precondition='maybe'; expected true or false\.$"):
        runs(optimizers=["genie"], optimizer_settings={"genie": {"precondition": "maybe"}})


def test_training_settings_of_a_sweep_change_its_protocol() -> None:
    settings = {"schedule": "cosine", "warmup": 4000, "clip": 1, "label_smoothing": 0.1, "freeze": 1}
    (config, *_) = runs(overrides=settings | {"class_weights": "balanced", "early_stop": 3})
    assert {name: getattr(config, name) for name in settings} == settings
    assert (config.class_weights, config.early_stop, config.protocol) == ("balanced", 3, "domainbed/changed")
