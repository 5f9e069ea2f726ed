"""What programs read: JSON, silence, lines that are not cut, one spelling of flags, ``python -m genie_dg``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from genie_dg.algorithms.registry import ALGORITHMS
from genie_dg.cli.main import build_parser, main

from .test_bad_calls import leaves

SWEEP = """name = "s"
protocol = "domainbed"
datasets = ["digits"]
algorithms = ["ERM"]
optimizers = ["adam", "sgd"]
hparams = 1
trials = 1
test_domains = [["75 degrees"]]
[overrides]
steps = 2
backbone = "mlp"
"""


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of two runs in a folder whose path is longer than a line."""
    root = tmp_path_factory.mktemp("a" * 120)
    (root / "sweep.toml").write_text(SWEEP)
    return root


def sweep(root: Path, *more: str) -> int:
    words = ["sweep", str(root / "sweep.toml"), "--out", str(root / "runs"), "--device", "cpu"]
    return main([*words, "--engine", "here", *more])


def test_a_sweep_says_names_and_whole_lines(swept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep(swept) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith(f"in {swept / 'runs'}")
    assert len(lines) == 4
    assert "digits ERM adam without 75 degrees, trial 0, draw 0" in lines[1]
    assert sweep(swept, "--quiet") == 0
    assert capsys.readouterr().out == ""


def test_status_as_json(swept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep(swept, "--quiet") == 0
    assert main(["status", str(swept / "runs"), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["sweeps"]
    assert (found["name"], found["counts"]["done"]) == ("s", 2)
    assert [run["test_domain_names"] for run in found["runs"]] == [["75 degrees"]] * 2
    assert {run["optimizer"] for run in found["runs"]} == {"adam", "sgd"}
    assert all((swept / "runs" / run["run"]).is_dir() for run in found["runs"])


def test_compare_as_json(swept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep(swept, "--quiet") == 0
    assert main(["compare", str(swept / "runs"), "--resamples", "10", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (difference,) = found["differences"]
    assert (difference["row"], difference["baseline"]) == ("ERM + sgd", "ERM + adam")
    assert -1 <= difference["difference"] <= 1
    assert set(found["budgets"]) == {"ERM + adam", "ERM + sgd"}


def test_lists_as_json_and_in_whole_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in found["algorithms"]] == list(ALGORITHMS)
    genie = next(row for row in found["optimizers"] if row["name"] == "genie")
    assert genie["settings"]["precondition"] == {"default": True, "kind": "true or false", "searched": False}
    assert main(["list", "algorithms"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1 + len(ALGORITHMS)


def test_training_says_nothing_when_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "digits", "--test-domain", "0", "--steps", "1", "--backbone", "mlp", "-o", str(tmp_path)]
    assert main([*words, "--quiet", "--device", "cpu"]) == 0
    assert capsys.readouterr() == ("", "")
    assert main([*words, "--device", "cpu"]) == 0
    assert str(next(tmp_path.iterdir())) in capsys.readouterr().out.replace("\n", " ")


def test_flags_are_spelled_alike() -> None:
    """Where a verb writes is -o and --out, the size of pictures --image-size, in all verbs."""
    spelled: dict[str, set[str]] = {}
    for _, parser in leaves(build_parser()):
        for action in parser._actions:
            for option in action.option_strings:
                spelled.setdefault(action.dest, set()).add(option)
    assert spelled["out"] == {"-o", "--out"}
    assert "output" not in spelled
    assert "size" not in spelled
    assert spelled["image_size"] == {"--image-size"}
    for dest, options in spelled.items():
        assert len({option for option in options if option.startswith("--")}) <= 1, dest


def test_an_error_of_the_system_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(arguments: argparse.Namespace) -> int:
        open(tmp_path / "none").close()
        return 0

    monkeypatch.setattr("genie_dg.cli.env.run", refuse)
    assert main(["env"]) == 2
    assert (
        capsys.readouterr().err
        == f"genie-dg: {tmp_path / 'none'} cannot be used (No such file or directory).\n"
    )
