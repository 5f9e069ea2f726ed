"""The tables as commands: what they plan, run, resume and write."""

from __future__ import annotations

import csv
import os
import re
from pathlib import Path

import pytest

from genie_dg.algorithms.registry import ALGORITHMS
from genie_dg.data.published.catalog import PUBLISHED as SETS
from genie_dg.optim.registry import OPTIMIZERS
from genie_dg.protocols.registry import find_protocol
from genie_dg.protocols.sweep import Facts, expand, load_sweep
from genie_dg.results.frame import load
from paper.experiments import EXPERIMENTS, runs_of, sweeps, to_toml
from paper.registry import PAPER
from paper.request import Request, Result
from paper.runs import seconds_until, until
from paper.sourced import LOGGED, MEASURED, QUOTED, SourcedNumber, markdown, numbers_csv

FOLDER = Path(__file__).parents[2] / "experiments"
FACTS = Facts({name: row.domains for name, row in SETS.items()}, ALGORITHMS, OPTIMIZERS)
PARTS = ("only-precondition", "precondition-and-noise", "precondition-and-mask", "all-off")
COUNTS = {
    "optimizers": 22 * 10 * 60,
    "iterations": 12 * 4,
    "integration": 16 * 3 * 4 * 60,
    "integration-sam": 16 * 2 * 60,
    "integration-algorithms": 16 * 14 * 60,
    "single-source": 16 * 9 * 60,
    "single-source-sam": 16 * 60,
    "single-source-adamw": 16 * 60,
    "ablation": 4 * 2 * 60,
    **{f"ablation-{one}": 4 * 60 for one in PARTS},
    "sensitivity": 4 * 3 * 3,
    **{f"sensitivity-p-{p}": 4 * 3 for p in (0.0, 0.2, 0.4, 0.6, 0.8)},
    **{f"sensitivity-beta-{beta}": 4 * 3 for beta in (0.9, 0.95, 0.99, 0.995, 0.999)},
}


TABLES = [row for row in PAPER.values() if row.own_sets]


def committed() -> dict[str, str]:
    """The files of ``experiments`` as the code writes them."""
    texts = {}
    for experiment in EXPERIMENTS.values():
        for _, sweep in sweeps(experiment, "paper"):
            command = f"genie-dg sweep experiments/{sweep.name}.toml --root DATA"
            comment = f"{experiment.about}\n{runs_of(sweep):,} runs. {command}"
            texts[f"{sweep.name}.toml"] = to_toml(sweep, comment)
    return texts


def test_the_committed_files_are_what_the_experiments_say() -> None:
    assert {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.toml")} == committed()
    assert {path.stem for path in FOLDER.glob("*.toml")} == set(COUNTS)


@pytest.mark.parametrize("name", COUNTS)
def test_a_committed_file_is_a_sweep_of_the_right_size(name: str) -> None:
    sweep = load_sweep(FOLDER / f"{name}.toml")
    configs = expand(sweep, find_protocol(sweep.protocol, FOLDER), FACTS)
    assert len(configs) == COUNTS[name] == runs_of(sweep)
    assert len({config.run_id for config in configs[:300]}) == min(300, COUNTS[name])
    assert {config.backbone for config in configs} == {"resnet50"}
    assert f"{COUNTS[name]:,} runs" in (FOLDER / f"{name}.toml").read_text(encoding="utf-8")


def cells(text: str) -> str:
    """A Markdown table without the spaces that align it."""
    return re.sub(r" {2,}", " ", text)


def test_a_column_never_mixes_origins() -> None:
    numbers = [
        SourcedNumber("GENIE", "PACS", MEASURED, 50.0, 1.25, trials=3),
        SourcedNumber("GENIE", "PACS", QUOTED, 87.8),
        SourcedNumber("GENIE", "PACS", LOGGED, 88.1, runs=6),
        SourcedNumber("Adam", "PACS", MEASURED, None, note="no run"),
    ]
    assert cells(markdown("a|b", numbers)).splitlines() == [
        r"### a\|b",
        "",
        "| row | PACS (measured here) | PACS (quoted) | PACS (logged) |",
        "| ----- | -------------------: | ------------: | ------------: |",
        "| GENIE | 50.0 ± 1.2 | 87.8 | 88.1 |",
        "| Adam | X | - | - |",
        "",
        "X Adam, PACS: no run.",
    ]
    lines = list(csv.DictReader(numbers_csv([("t", numbers)]).splitlines()))
    here, *others, missing = [(line["origin"], line["value"], line["runs"]) for line in lines]
    assert (here, missing) == ((MEASURED, "50.0", "0"), (MEASURED, "", "0"))
    assert others == [(QUOTED, "87.8", "0"), (LOGGED, "88.1", "6")]


def test_the_paper_scale_tells_commands_and_runs_nothing(tmp_path: Path) -> None:
    for row in TABLES:
        result = row.make(Request("paper", tmp_path))
        for _, sweep in sweeps(EXPERIMENTS[row.name], "paper"):
            command = f"genie-dg sweep experiments/{sweep.name}.toml --root DATA --out {tmp_path / 'runs'}"
            assert f"`{command}`: {COUNTS[sweep.name]:,} runs" in result.text
    assert not (tmp_path / "runs").exists()


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all tables: they share runs."""
    return tmp_path_factory.mktemp("paper")


def smoke(name: str, out: Path) -> Result:
    return PAPER[name].make(Request("smoke", out))


def measured(result: Result) -> list[dict[str, str]]:
    """The lines of a table's CSV that were measured."""
    with result.files[1].open(encoding="utf-8", newline="") as file:
        return [line for line in csv.DictReader(file) if line["origin"] == MEASURED]


def test_iterations(out: Path) -> None:
    result = smoke("iterations", out)
    lines = measured(result)
    assert len({line["row"] for line in lines}) == 12
    adam = [line["value"] for line in lines if line["column"] == "time / Adam's" and line["row"][:4] == "Adam"]
    assert adam == ["1.0"] * 3
    assert "| 5000 | 4292 | 88.4 | 81.3 | 70.0 | 0.79 |" in cells(result.text)
    assert "| 4292 | 88.4 | 81.3 | 70.0 | 0.181 |" in cells(result.text)  # logged
    runs = load(out / "runs")
    assert until(runs, 4)["step"][0].to_list() == [0, 2, 4]
    folder = runs["folder"][0]
    assert 0 < seconds_until(folder, 2) < seconds_until(folder, 6)


def test_ablation_runs_and_goes_on_for_nothing(out: Path) -> None:
    result = smoke("ablation", out)
    names = {line["row"] for line in measured(result)}
    assert "none" in names
    assert {"precondition", "precondition+noise", "precondition+mask", "precondition+noise+mask"} <= names
    settings = [config.optimizer_settings for config in load(out / "runs")["config"]]
    assert sum(s.get("precondition") is False for s in settings) == 2
    assert sum(s.get("noise") is False and s.get("dropout") == 0.0 for s in settings) == 4
    before = {path: os.stat(path).st_mtime_ns for path in (out / "runs").glob("*/records.jsonl")}
    assert smoke("ablation", out).text == result.text
    assert before == {path: os.stat(path).st_mtime_ns for path in before}


def test_the_miniature_is_read_at_its_own_levels() -> None:
    experiment = EXPERIMENTS["iterations"]
    ((_, sweep),) = sweeps(experiment, "cpu")
    levels = experiment.levels_of("cpu")
    assert (sweep.datasets, sweep.trials) == (["digits"], 3)
    assert sweep.overrides["steps"] == levels[-1] + 1
    assert all(level % sweep.overrides["checkpoint_every"] == 0 for level in levels)
    assert sweep.optimizer_settings["sgd"]["lr"] == 0.1  # not the authors' 5e-5
    assert experiment.levels_of("cpu", "styleshapes") == (40, 80, 120)
    assert sweeps(experiment, "cpu", "styleshapes")[0][1].optimizer_settings["sgd"]["lr"] == 5e-5
