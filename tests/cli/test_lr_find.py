"""genie-dg lr-find: the rate, its reason, the command to train with, and the picture."""

from __future__ import annotations

import json
import math
import shlex
from pathlib import Path

import pytest

from genie_dg.cli.main import build_parser, main
from tests.data.pictures import write

from .calls import one_sentence

WORDS = ["lr-find", "digits", "--test-domain", "30 degrees", "--backbone", "mlp", "--device", "cpu"]
QUICK = [*WORDS, "--steps", "12"]


def test_the_rate_its_reason_and_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUICK, "--optimizer", "Adam", "--set", "beta1=0.8"]) == 0
    reason, command = capsys.readouterr().out.splitlines()
    assert reason.startswith("lr=")
    assert "training steps were taken to find out." in reason
    words = shlex.split(command)
    assert words[:2] == ["genie-dg", "train"]
    typed = build_parser().parse_args(words[1:])
    assert (typed.data, typed.test_domain, typed.backbone) == ("digits", ["30 degrees"], "mlp")
    assert (typed.optimizer, typed.set, typed.device) == ("Adam", ["beta1=0.8"], "cpu")
    assert reason.startswith(f"lr={typed.lr}: ")


def test_the_command_has_what_was_typed_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    more = ["--batch-size", "8", "--no-augment", "--class-weights", "balanced", "--test-domain", "0"]
    assert main([*QUICK, *more, "--trial", "3"]) == 0
    command = capsys.readouterr().out.splitlines()[1]
    start, _, rate = command.rpartition(" --lr ")
    assert float(rate) > 0
    assert start == (
        "genie-dg train digits --test-domain '30 degrees' --test-domain 0 --backbone mlp --batch-size 8 "
        "--no-augment --trial 3 --class-weights balanced --device cpu"
    )


def test_json_and_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rate.png"
    assert main([*QUICK, "--json", "-o", str(file)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert min(found["lrs"]) <= found["lr"] <= max(found["lrs"])
    assert found["reason"].startswith(f"lr={found['lr']:g}: ")
    assert found["command"].endswith(f" --lr {found['lr']:g}")
    assert len(found["lrs"]) == len(found["losses"])
    assert all(loss is None or math.isfinite(loss) for loss in found["losses"])
    assert found["steps"] > 50
    assert file.read_bytes().startswith(b"\x89PNG")
    assert file.stat().st_size > 10_000
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("optimizer", ["sam", "adahessian"])
def test_optimizers_with_needs_of_their_own(optimizer: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUICK, "--optimizer", optimizer, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert min(loss for loss in found["losses"] if loss is not None) < found["first_loss"]


def test_a_folder_of_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for domain in ("a", "b"):
        for label in ("x", "y"):
            for k in range(6):
                write(tmp_path / "set" / domain / label / f"{k}.png", k + 10 * (label == "y"))
    words = ["lr-find", str(tmp_path / "set"), "--test-domain", "b", "--image-size", "32", "--batch-size", "4"]
    assert main([*words, "--device", "cpu", "--steps", "4", "--optimizer", "adam"]) == 0
    assert f"genie-dg train {tmp_path / 'set'} " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--algorithm", "irm"], "got algorithm=IRM; the rate is found with ERM alone"),
        (["--set", "lr=0.1"], "got lr=0.1, but the rate is what is looked for"),
        (["--lr", "0.1"], "--lr"),
        (["--steps", "1"], "expected a whole number of at least 2"),
        (["-o", "rate.gif"], "expected a file that ends with .png, .pdf or .svg."),
        (["-o", "nowhere/rate.png"], "is not a folder; make it first."),
        (["--optimizer", "adm"], "did you mean 'adam'?"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*QUICK, *words]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert one_sentence(printed.err)
    assert said in printed.err
