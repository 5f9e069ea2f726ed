"""Finished sweeps at the paper's scale, written by hand, and the verdicts that they are read back into."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from genie_dg.check import InputError
from genie_dg.cli import paper
from genie_dg.cli.main import main
from genie_dg.paper.ledger import make_claims
from genie_dg.paper.registry import PAPER
from genie_dg.paper.request import Request
from genie_dg.paper.sweep_claims import FROM_SWEEPS, sweep_numbers
from genie_dg.paper.verdict import FAILS, HOLDS
from genie_dg.runs.sweep_list import write_list

from ..results.build import record, run, write

ALL = range(4)


def sweep(
    out: Path, name: str, accuracy: Mapping[str, float], test: Any = lambda k: (k,), **more: Any
) -> list[Path]:
    """A sweep of PACS: each optimizer, each domain, trials 0 and 1."""
    runs = []
    for optimizer, points in accuracy.items():
        for domain in ALL:
            for trial in (0, 1):
                score = (points + domain + trial / 4) / 100
                records = [record(0, [0.1] * 4, [0.5] * 4), record(200, [score] * 4, [0.9] * 4)]
                options = {"protocol": "genie-paper", "optimizer": optimizer, **more}
                runs.append(run(test(domain), records, trial, **options))
    folders = [write(out / "runs", one) for one in runs]
    write_list(out / "runs", name, [one.config for one in runs])
    return folders


def test_accuracies_of_a_sweep_become_a_verdict(tmp_path: Path) -> None:
    sweep(tmp_path / "optimizers", "optimizers", {"genie": 80, "sgd": 70, "adam": 79.5, "sam": 81})
    found = sweep_numbers(Request("paper", tmp_path / "claims"))
    assert found.numbers["accuracy"]["SGD"] == pytest.approx([10.0] * 8)
    assert found.numbers["accuracy"]["SAM"] == pytest.approx([-1.0] * 8)
    assert set(found.numbers) == {"accuracy"}
    assert found.trials == [0, 1]
    assert len(found.runs) == 32
    assert found.notes == ["- optimizers: 32 of 32 runs of its sweeps are done"]
    result = make_claims(Request("paper", tmp_path / "claims"))
    whole = json.loads((tmp_path / "claims" / "claims.json").read_text())
    said = {entry["claim"]["name"]: entry["judged"] for entry in whole["claims"]}
    assert (said["accuracy"]["verdict"], said["accuracy"]["part"]) == (FAILS, "SAM")
    assert "**does not hold**" in result.text
    assert "genie-dg sweep experiments/integration.toml" in result.text
    assert "genie-dg sweep experiments/optimizers.toml" not in result.text


def test_pairs_of_which_one_side_is_not_done_are_left_out(tmp_path: Path) -> None:
    folders = sweep(tmp_path / "optimizers", "optimizers", {"genie": 80, "adam": 79})
    for folder in folders[-7:]:
        (folder / "done").unlink()
    found = sweep_numbers(Request("paper", tmp_path / "claims"))
    assert found.numbers == {}  # one pair has no interval
    (folders[-1] / "done").touch()
    found = sweep_numbers(Request("paper", tmp_path / "claims"))
    assert found.numbers["accuracy"] == {"Adam": pytest.approx([1.0, 1.0])}
    assert found.notes == ["- optimizers: 10 of 16 runs of its sweeps are done"]


def test_runs_of_a_miniature_do_not_count(tmp_path: Path) -> None:
    sweep(tmp_path / "optimizers", "optimizers", {"genie": 80, "adam": 79}, backbone="resnet18")
    assert sweep_numbers(Request("paper", tmp_path / "claims")).numbers == {}


def test_one_source_algorithms_ablation_and_grid(tmp_path: Path) -> None:
    def others(source: int) -> tuple[int, ...]:
        return tuple(k for k in ALL if k != source)

    sweep(tmp_path / "single-source", "single-source", {"genie": 60, "adam": 50, "sgd": 40}, others)
    sweep(tmp_path / "single-source", "single-source-sam", {"sam": 55}, others)
    accuracy = {"genie": 60, "adam": 50, "adamw": 61, "sgd": 40}
    sweep(tmp_path / "integration", "integration", accuracy, algorithm="RSC")
    sweep(tmp_path / "integration", "integration-sam", {"sam": 57}, algorithm="RSC")
    sweep(tmp_path / "ablation", "ablation", {"adam": 84, "genie": 88})
    only = {"noise": False, "dropout": 0.0}
    sweep(tmp_path / "ablation", "ablation-only-precondition", {"genie": 87}, optimizer_settings=only)
    home = {"dataset": "OfficeHome"}
    sweep(tmp_path / "sensitivity", "sensitivity", {"adam": 63}, **home)
    grid = {**home, "optimizer_settings": {"dropout": 0.2}}
    sweep(tmp_path / "sensitivity", "sensitivity-p-0.2", {"genie": 67}, **grid)
    numbers = sweep_numbers(Request("paper", tmp_path / "claims")).numbers
    means = {name: {part: values[0] for part, values in parts.items()} for name, parts in numbers.items()}
    labels = ("Adam", "AdamW", "SGD", "SAM")
    assert means == {
        "one-source": pytest.approx({"Adam": 10, "SGD": 20, "SAM": 5}),
        "algorithms": pytest.approx(
            {f"RSC against {label}": value for label, value in zip(labels, (10, -1, 20, 3), strict=True)}
        ),
        "preconditioning": pytest.approx({"Adam": 3}),
        "noise-and-mask": pytest.approx({"preconditioning alone": 1}),
        "robust": pytest.approx({"GENIE p=0.2 against Adam": 4}),
    }


def test_seconds_are_compared_as_ratios_and_untimed_runs_left_out(tmp_path: Path) -> None:
    folders = sweep(tmp_path / "iterations", "iterations", {"genie": 80, "sam": 79})
    for at, folder in enumerate(folders[:-1]):
        spent = 30.0 if at < 8 else 60.0
        (folder / "timings.jsonl").write_text(json.dumps({"step": 200, "seconds": spent}) + "\n")
    result = make_claims(Request("paper", tmp_path / "claims", only=("cost",)))
    (entry,) = json.loads((tmp_path / "claims" / "claims.json").read_text())["claims"]
    assert entry["numbers"] == {"SAM": [0.5] * 7}
    assert entry["judged"]["verdict"] == HOLDS
    assert "```" not in result.text


def asked(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    paper.add_arguments(parser)
    return parser.parse_args(["all", "--scale", "paper", *words])


def test_parts_whose_data_is_not_here_are_told_and_do_not_stop_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep(tmp_path / "paper" / "optimizers", "optimizers", {"genie": 80, "sgd": 70, "adam": 79, "sam": 70})
    rows = [PAPER[name] for name in ("integration", "osgr", "landscape", "claims")]
    assert paper.make_all(rows, asked("--out", str(tmp_path))) == 0
    said = capsys.readouterr().out
    assert said.count("Not made: The paper's scale needs ") == 2
    assert f"genie-dg paper landscape --scale paper --root DATA --out {tmp_path}" in said
    assert "| GENIE generalises better than SGD, Adam and SAM |" in said
    for name, claim in FROM_SWEEPS.items():
        place = tmp_path / "paper" / claim.experiment / "runs"
        assert (f"{claim.experiment}.toml --root DATA --out {place}  #" in said) == (name != "accuracy")


def test_tables_have_their_own_sets_and_a_failure_is_told_at_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, out = [PAPER[name] for name in ("osgr", "integration")], ("--out", str(tmp_path / "out"))
    with pytest.raises(InputError, match=r"1 of 2 parts could not be made: osgr\. osgr: .*holds no folder"):
        paper.make_all(rows, asked("--root", str(tmp_path), *out))
    assert "### integration: average accuracy" in capsys.readouterr().out
    assert paper.make_all(rows[1:], asked("--data", "digits", *out)) == 0
    call = ["paper", "integration", "--scale", "paper", "--data", "digits", "--out", str(tmp_path)]
    assert main(call) == 2
    assert "which has the paper's data sets" in capsys.readouterr().err


@pytest.mark.slow
def test_all_at_the_papers_scale_finishes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paper", "all", "--scale", "paper", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert said.count("Not made: The paper's scale needs ") == 4
    assert [line.split(":")[0][3:] for line in said.splitlines() if line.startswith("## ")] == list(PAPER)
