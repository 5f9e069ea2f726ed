"""genie-dg lr-find: the rate, its reason, and what cannot be."""

from __future__ import annotations

import json
import math

import pytest

from genie_dg.cli.main import main

from .calls import one_sentence

WORDS = ["lr-find", "digits", "--test-domain", "30 degrees", "--backbone", "mlp", "--device", "cpu"]
QUICK = [*WORDS, "--steps", "12"]


def test_the_rate_and_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUICK, "--optimizer", "Adam", "--set", "beta1=0.8"]) == 0
    reason, command = capsys.readouterr().out.splitlines()
    assert "training steps were taken to find out." in reason
    rate = command.rpartition(" --lr ")[2].rstrip(".")
    assert reason.startswith(f"lr={rate}: ")


def test_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUICK, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert min(found["lrs"]) <= found["lr"] <= max(found["lrs"])
    assert found["reason"].startswith(f"lr={found['lr']:g}: ")
    assert len(found["lrs"]) == len(found["losses"])
    assert all(loss is None or math.isfinite(loss) for loss in found["losses"])
    assert found["steps"] > 50


@pytest.mark.parametrize("optimizer", ["sam", "adahessian"])
def test_optimizers_with_needs_of_their_own(optimizer: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUICK, "--optimizer", optimizer, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert min(loss for loss in found["losses"] if loss is not None) < found["first_loss"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--algorithm", "irm"], "got algorithm=IRM; the rate is found with ERM alone"),
        (["--set", "lr=0.1"], "got a learning rate, which is what is looked for"),
        (["--lr", "0.1"], "--lr"),
        (["--steps", "1"], "expected a whole number from 2 to 4096"),
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
