"""``genie-dg train`` and ``genie-dg data`` on a small tree in each published layout."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from genie_dg.cli.main import main
from tests.data.published.layouts import LAYOUTS

SMALL = ["--backbone", "cnn", "--image-size", "16", "--batch-size", "2"]
SHORT = [*SMALL, "--steps", "2", "--every", "1", "--quiet"]
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in LAYOUTS if name != "WILDSCamelyon"]


def call(*words: object) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return main([str(word) for word in words])


@pytest.mark.parametrize("name", ["WILDSCamelyon", *SLOW])
def test_train_on_a_small_tree(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = LAYOUTS[name](tmp_path / "data")
    assert call("data", "verify", name, "--root", root) == 0
    assert "Everything is as it should be." in capsys.readouterr().out
    given = ["train", name, "--root", root, "--test-domain", 0, *SHORT, "--cache", tmp_path / "cache"]
    assert call(*given, "--out", tmp_path / "runs") == 0
    (run,) = (tmp_path / "runs").iterdir()
    assert len((run / "records.jsonl").read_text().splitlines()) == 2


def test_train_on_noise(tmp_path: Path) -> None:
    assert call("train", "Debug28", "--test-domain", 1, *SHORT, "--out", tmp_path) == 0
