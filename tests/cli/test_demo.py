"""``genie-dg demo`` from end to end, and the package it misses."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from genie_dg.cli.main import main

from .calls import call, one_sentence


@pytest.mark.parametrize(("module", "package"), [("sklearn", "scikit-learn"), ("rich", "rich")])
def test_a_missing_package_names_its_extra(
    module: str, package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    assert main(["demo"]) == 2
    printed = capsys.readouterr().err
    assert one_sentence(printed)
    assert package in printed
    assert 'pip install "genie-dg[bench]"' in printed


def test_demo_goes_from_a_sweep_to_a_table_and_a_report(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    done = call(
        "demo", "--steps", "4", "--draws", "1", "--trials", "1", "--optimizers", "adam,genie", "--out", str(out)
    )
    assert done.returncode == 0, done.stderr
    assert "6 of 6 runs are done, 0 failed." in done.stdout
    assert re.search(r"\| ERM +\| genie ", done.stdout)
    assert "ERM + genie" in done.stdout
    assert (out / "report.html").stat().st_size > 1000
    again = call(
        "demo", "--steps", "4", "--draws", "1", "--trials", "1", "--optimizers", "adam,genie", "--out", str(out)
    )
    assert "6 done already" in again.stdout
