"""From data to a model in one command: candidates, winner, forecast, page, and a second call that goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import genie_dg
from genie_dg.cli.main import main

from .calls import one_sentence

SHORT = ["--backbone", "mlp", "--steps", "6", "--every", "5"]
WORDS = ["fit", "digits", *SHORT, "--workers", "2", "--device", "cpu"]
TWO = ["--candidate", "adam:lr=1e-3", "--candidate", "sgd:lr=1e-7"]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("fit") / "out"
    assert main([*WORDS, *TWO, "--out", str(out)]) == 0
    return out


def test_the_winner_is_trained_on_all_domains(fitted: Path) -> None:
    numbers = json.loads((fitted / "fit.json").read_text())
    assert numbers["winner"] == "adam lr=0.001"
    assert len(numbers["domains"]) == 6
    low, high = numbers["interval"]
    assert 0 <= low <= numbers["expected"] <= high <= 1
    assert numbers["expected"] == pytest.approx(sum(d["accuracy"] for d in numbers["domains"]) / 6)
    model = genie_dg.load_model(fitted / "model.pt")
    assert model.config.test_domains == ()
    assert len(model.classes) == 10
    assert model.probabilities([torch.zeros(1, 8, 8)]).shape == (1, 10)


def test_a_model_of_all_domains_can_be_shown_and_evaluated(
    fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = fitted / "model.pt"
    lines = genie_dg.load_model(file).describe().splitlines()
    assert lines[1].endswith("75 degrees; left out none")
    assert lines[-1].startswith("validation ")
    assert "left out" not in lines[-1]
    capsys.readouterr()
    assert main(["evaluate", str(file), "digits", "--as-table"]) == 2
    told = capsys.readouterr().err
    assert one_sentence(told)
    assert "was trained on all domains" in told


def test_a_second_call_trains_nothing_again(fitted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in fitted.rglob("records.jsonl")}
    assert main([*WORDS, *TWO, "--out", str(fitted), "--quiet"]) == 0
    assert {path: path.stat().st_mtime_ns for path in fitted.rglob("records.jsonl")} == before
    assert capsys.readouterr().out.startswith("The winner is adam lr=0.001. On a domain nobody has seen expect")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--candidate", "adem"], "did you mean 'adam'?"),
        (["--candidate", "adam:lr=fast"], "lr"),
        (["--candidate", "adam", "--candidate", "adam"], "Two of the candidates are the same"),
        (["--choose", "best"], "leave-one-domain-out"),
    ],
)
def test_a_wrong_request_is_one_sentence(
    more: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*WORDS, *more, "--out", str(tmp_path / "out")]) == 2
    told = capsys.readouterr().err
    assert one_sentence(told)
    assert said in told
    assert not (tmp_path / "out").exists()
