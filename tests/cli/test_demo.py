"""``genie-dg demo`` from end to end, and the package it misses."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from genie_dg.bench.options import RunOptions
from genie_dg.bench.sweep import plan
from genie_dg.cli import demo
from genie_dg.cli.main import main

from .calls import call, one_sentence


def test_a_missing_package_names_its_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "rich", None)
    assert main(["demo", "--data", "digits"]) == 2
    printed = capsys.readouterr().err
    assert one_sentence(printed)
    assert 'needs rich, not installed here; run pip install "genie-dg[bench]"' in printed


def test_demo_goes_from_a_sweep_to_a_table_and_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files, out = tmp_path / "files", tmp_path / "demo"
    files.mkdir()
    for name in ("demo_digits.toml", "demo_digits_sweep.toml"):
        text = (demo._FILES / name).read_text()
        text = (
            text.replace("steps = 200", "steps = 4")
            .replace("every = 50", "every = 2")
            .replace("= 3\n", "= 1\n")
        )
        (files / name).write_text(text)
    monkeypatch.setattr(demo, "_FILES", files)
    assert main(["demo", "--data", "digits", "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "12 of 12 runs are done, 0 failed." in shown
    assert re.search(r"\| ERM +\| genie ", shown)
    assert "ERM + genie" in shown
    assert "How to read it: Three angles" in shown
    assert (out / "report.html").stat().st_size > 1000
    assert main(["demo", "--data", "digits", "--out", str(out)]) == 0
    assert "12 done already" in capsys.readouterr().out


def test_by_default_a_pretrained_network_is_fine_tuned_on_each_style_in_turn(tmp_path: Path) -> None:
    file = demo.write_demo(tmp_path, "styleshapes")
    configs = [job.config for job in plan(file, RunOptions(out=str(tmp_path / "runs"))).jobs]
    assert len(configs) == 12
    assert {config.test_domains for config in configs} == {(0,), (1,), (2,), (3,)}
    assert {(c.backbone, c.pretrained, c.steps) for c in configs} == {("efficientnet_lite0", True, 31)}
    assert all(c.freeze_statistics for c in configs)
    rates = {c.optimizer: c.optimizer_settings["lr"] for c in configs}
    assert rates == {"sgd": 3e-3, "adam": 3e-4, "genie": 5e-3}


@pytest.mark.slow
def test_the_default_demo_runs(tmp_path: Path) -> None:
    done = call("demo", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "12 of 12 runs are done, 0 failed." in done.stdout
