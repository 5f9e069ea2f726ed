"""DomainBed's folders become runs, fill the same tables, and are never damaged by a second import."""

from __future__ import annotations

import json
from keyword import iskeyword
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from genie_dg.algorithms.registry import ALGORITHMS
from genie_dg.data.published.catalog import PUBLISHED
from genie_dg.optim.registry import OPTIMIZERS
from genie_dg.results.domainbed import ALGORITHM_SETTINGS, DOMAINBED_DOMAINS, import_domainbed
from genie_dg.results.frame import load
from genie_dg.results.render import render
from genie_dg.results.tables import tables
from genie_dg.runs.config import RunConfig, from_mapping

HPARAMS = {"lr": 5e-5, "batch_size": 32, "weight_decay": 1e-4, "resnet_dropout": 0.1, "data_augmentation": True}


def line(
    step: int, score: float, args: dict[str, Any], hparams: dict[str, Any], count: int = 4
) -> dict[str, Any]:
    one = {"args": args, "hparams": hparams, "step": step, "epoch": step / 40, "loss": 0.5, "step_time": 0.1}
    for k in range(count):
        one |= {f"env{k}_in_acc": score, f"env{k}_out_acc": score / 2}
    return one


def arguments(test: list[int], trial: int = 0, draw: int = 0, **more: Any) -> dict[str, Any]:
    usual = {"algorithm": "ERM", "dataset": "PACS", "steps": 301, "task": "domain_generalization", "seed": 7}
    usual |= {
        "holdout_fraction": 0.2,
        "uda_holdout_fraction": 0,
        "output_dir": "/etc/passwd",
        "checkpoint_freq": None,
    }
    return {**usual, "test_envs": test, "trial_seed": trial, "hparams_seed": draw, **more}


def folder(
    root: Path, name: str, args: dict[str, Any], scores: list[float], done: bool = True, **hparams: Any
) -> Path:
    path = root / name
    path.mkdir(parents=True)
    lines = [line(300 * k, score, args, {**HPARAMS, **hparams}) for k, score in enumerate(scores)]
    (path / "results.jsonl").write_text("".join(json.dumps(one, sort_keys=True) + "\n" for one in lines))
    if done:
        (path / "done").write_text("done")
    return path


def only(path: Path) -> dict[str, Any]:
    """The one run of a folder as a row of the frame, which is read without a problem."""
    (row,) = load(path).iter_rows(named=True)
    return row


def config_of(row: dict[str, Any]) -> RunConfig:
    return from_mapping(structs.asdict(row["config"]))


def records_of(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [json.loads(text) for text in (Path(row["folder"]) / "records.jsonl").read_text().splitlines()]


def test_a_tree_of_folders_fills_a_table(tmp_path: Path) -> None:
    for trial in range(3):
        for test in range(4):
            folder(
                tmp_path / "db" / "deep", f"{trial}{test}", arguments([test], trial), [0.1, (trial + 1) / 10]
            )
    done = import_domainbed(tmp_path / "db", tmp_path / "runs")
    assert (done.written, done.present, done.problems) == (12, 0, ())
    text = render(tables(load(tmp_path / "runs")))
    assert (
        "| ERM       | adam      | 20.0 +/- 4.7 | 20.0 +/- 4.7 | 20.0 +/- 4.7 | 20.0 +/- 4.7 | 20.0 |" in text
    )
    assert "art_painting" in text


def test_what_a_run_becomes(tmp_path: Path) -> None:
    hparams = {"irm_lambda": 3.0, "irm_penalty_anneal_iters": 10, "strange": [1, {"a": 2}]}
    args = arguments([2, 1], 1, 4, algorithm="IRM", dataset="VLCS")
    folder(tmp_path / "db", "x", args, [0.2, 0.4], **hparams)
    import_domainbed(tmp_path / "db", tmp_path / "runs")
    found = only(tmp_path / "runs")
    config = config_of(found)
    assert (config.dataset, config.test_domains, config.algorithm, config.optimizer) == (
        "VLCS",
        (1, 2),
        "IRM",
        "adam",
    )
    assert config.algorithm_settings == {"irm_lambda": 3.0, "irm_penalty_anneal_iters": 10}
    assert config.optimizer_settings == {"lr": 5e-5, "weight_decay": 1e-4}
    assert (config.batch_size, config.dropout, config.backbone) == (32, 0.1, "resnet50")
    assert (config.steps, config.checkpoint_every, config.trial_seed, config.hparams_seed) == (301, 300, 1, 4)
    assert (config.protocol, config.eval_augment, config.pretrained) == ("domainbed", "train", True)
    assert found["run"] == config.run_id == Path(found["folder"]).name
    assert (tuple(found["domains"]), found["done"]) == (DOMAINBED_DOMAINS["VLCS"], True)
    meta = json.loads((Path(found["folder"]) / "meta.json").read_text())
    assert meta["hparams"] == {**HPARAMS, **hparams}
    assert meta["args"] == args
    assert records_of(found)[1] == {
        "step": 300,
        "epoch": 7.5,
        "loss": 0.5,
        "validation_loss": None,
        "in_acc": [0.4] * 4,
        "out_acc": [0.2] * 4,
    }


def test_adversarial_runs_take_the_rate_of_the_generator(tmp_path: Path) -> None:
    more = {"lr_g": 1e-4, "lr_d": 2e-4, "weight_decay_g": 0.3, "lambda": 0.7, "beta1": 0.5}
    folder(tmp_path / "db", "x", arguments([0], algorithm="DANN"), [0.2], **more)
    import_domainbed(tmp_path / "db", tmp_path / "runs")
    config = config_of(only(tmp_path / "runs"))
    assert config.optimizer_settings == {"lr": 1e-4, "weight_decay": 0.3}
    assert config.algorithm_settings == {"lr_d": 2e-4, "lambda_": 0.7, "beta1": 0.5}


def test_every_name_is_one_of_ours() -> None:
    for algorithm, names in ALGORITHM_SETTINGS.items():
        ours = {f"{name}_" if iskeyword(name) else name for name in names}
        assert ours <= set(ALGORITHMS[algorithm].space), algorithm
        assert ALGORITHMS[algorithm].name == algorithm
    assert {"lr", "weight_decay"} <= set(OPTIMIZERS["adam"].space)
    for name, row in PUBLISHED.items():
        assert DOMAINBED_DOMAINS[name] == row.domains


@pytest.mark.parametrize(
    ("more", "protocol"),
    [
        ({}, "domainbed"),
        ({"task": "domain_adaptation"}, "domainbed-other"),
        ({"uda_holdout_fraction": 0.5}, "domainbed-other"),
        ({"holdout_fraction": 0.1}, "domainbed-other"),
    ],
)
def test_other_rules_have_another_name(tmp_path: Path, more: dict[str, Any], protocol: str) -> None:
    folder(tmp_path / "db", "x", arguments([0], **more), [0.2])
    import_domainbed(tmp_path / "db", tmp_path / "runs")
    assert only(tmp_path / "runs")["protocol"] == protocol
    assert only(tmp_path / "runs")["oracle"] == "last"


def test_defaults_of_data_sets(tmp_path: Path) -> None:
    for name, dataset in (("a", "RotatedMNIST"), ("b", "DomainNet"), ("c", "MyOwn")):
        folder(tmp_path / "db", name, arguments([0], dataset=dataset, steps=None), [0.2])
    import_domainbed(tmp_path / "db", tmp_path / "runs")
    runs = {row["dataset"]: row for row in load(tmp_path / "runs").iter_rows(named=True)}
    configs = {name: config_of(row) for name, row in runs.items()}
    assert {name: (c.backbone, c.checkpoint_every, c.steps) for name, c in configs.items()} == {
        "RotatedMNIST": ("cnn", 100, 5001),
        "DomainNet": ("resnet50", 1000, 5001),
        "MyOwn": ("resnet50", 300, 5001),
    }
    assert runs["MyOwn"]["domains"] == ["domain 0", "domain 1", "domain 2", "domain 3"]


def snapshot(root: Path) -> dict[str, tuple[bytes, int]]:
    files = [path for path in sorted(root.rglob("*")) if path.is_file()]
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def test_the_same_import_again_changes_nothing(tmp_path: Path) -> None:
    folder(tmp_path / "db", "x", arguments([0]), [0.2])
    import_domainbed(tmp_path / "db", tmp_path / "runs")
    before = snapshot(tmp_path)
    again = import_domainbed(tmp_path / "db", tmp_path / "runs")
    assert (again.written, again.present, again.problems) == (0, 1, ())
    assert snapshot(tmp_path) == before


def test_an_unfinished_run_may_go_on(tmp_path: Path) -> None:
    source = folder(tmp_path / "db", "x", arguments([0]), [0.2], done=False)
    import_domainbed(tmp_path / "db", tmp_path / "runs")
    assert not only(tmp_path / "runs")["done"]
    with (source / "results.jsonl").open("a") as file:
        file.write(json.dumps(line(300, 0.4, arguments([0]), HPARAMS)) + "\n")
    (source / "done").touch()
    assert import_domainbed(tmp_path / "db", tmp_path / "runs").written == 1
    found = only(tmp_path / "runs")
    assert (found["done"], found["step"]) == (True, [0, 300])


@pytest.mark.parametrize("name", ["records.jsonl", "config.json", "meta.json"])
def test_nothing_is_overwritten(tmp_path: Path, name: str) -> None:
    folder(tmp_path / "db", "x", arguments([0]), [0.2])
    import_domainbed(tmp_path / "db", tmp_path / "runs")
    (there,) = (tmp_path / "runs").iterdir()
    (there / name).write_text("mine\n")
    before = snapshot(tmp_path)
    again = import_domainbed(tmp_path / "db", tmp_path / "runs")
    assert (again.written, again.present) == (0, 0)
    assert "left as it is" in again.problems[0]
    assert snapshot(tmp_path) == before


def test_broken_lines_are_reported(tmp_path: Path) -> None:
    source = folder(tmp_path / "db", "x", arguments([0]), [0.2])
    good = line(300, 0.4, arguments([0]), HPARAMS)
    bad = [
        "{",
        "[]",
        json.dumps({"step": 1}),
        json.dumps({**good, "step": "x"}),
        json.dumps({"args": {}, "hparams": {}, "step": 1}),
    ]
    nan = {**good, "step": 310, "env1_in_acc": float("nan")}
    with (source / "results.jsonl").open("a") as file:
        file.write("\n".join([*bad, json.dumps({**good, "loss": float("nan")}), json.dumps(nan)]) + "\n")
    folder(tmp_path / "db", "empty", arguments([1]), [])
    done = import_domainbed(tmp_path / "db", tmp_path / "runs")
    assert len(done.problems) == 7
    assert [problem.split()[1] for problem in done.problems if problem.startswith("Line")] == ["2", "3"]
    assert sum("is not a record of DomainBed;" in problem for problem in done.problems) == 3
    assert any(problem.startswith("Step 310") for problem in done.problems)
    assert any("empty/results.jsonl has no record" in problem for problem in done.problems)
    assert [r["loss"] for r in records_of(only(tmp_path / "runs"))] == [0.5, None]


def test_a_run_that_was_started_again_keeps_its_last_attempt(tmp_path: Path) -> None:
    source = folder(tmp_path / "db", "x", arguments([0]), [0.2, 0.3])
    with (source / "results.jsonl").open("a") as file:
        file.write(json.dumps(line(0, 0.9, arguments([0]), HPARAMS)) + "\n")
    done = import_domainbed(tmp_path / "db", tmp_path / "runs")
    assert "2 records of earlier attempts" in done.problems[0]
    assert only(tmp_path / "runs")["in_acc"] == [0.9] * 4


@pytest.mark.parametrize(
    ("args", "hparams"),
    [
        ({"algorithm": "ERM"}, {}),
        (arguments([]), {}),
        (arguments([0], steps=float("inf")), {}),
        (arguments([0], trial_seed="x"), {}),
        (arguments([0]), {"lr": float("nan")}),
        (arguments([0]), {"batch_size": 0}),
        (arguments([0]), {"resnet_dropout": 7.0}),
    ],
)
def test_what_is_no_configuration_is_left_out(
    tmp_path: Path, args: dict[str, Any], hparams: dict[str, Any]
) -> None:
    folder(tmp_path / "db", "a", args, [0.2], **hparams)
    folder(tmp_path / "db", "b", arguments([1]), [0.2])
    done = import_domainbed(tmp_path / "db", tmp_path / "runs")
    assert (done.written, len(done.problems)) == (1, 1)
    assert "a/results.jsonl is of no run that can be read" in done.problems[0]
