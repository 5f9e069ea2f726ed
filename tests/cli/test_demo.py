"""``genie-dg demo`` from end to end, and the package it misses."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

import pytest

from genie_dg.bench.options import RunOptions
from genie_dg.bench.sweep import plan
from genie_dg.cli import demo
from genie_dg.cli.main import main

from .calls import call, one_sentence


@pytest.mark.parametrize(("module", "package"), [("sklearn", "scikit-learn"), ("rich", "rich")])
def test_a_missing_package_names_its_extra(
    module: str, package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    assert main(["demo", "--data", "digits"]) == 2
    printed = capsys.readouterr().err
    assert one_sentence(printed)
    assert package in printed
    assert 'pip install "genie-dg[bench]"' in printed


SMALL = ("--steps", "4", "--draws", "1", "--trials", "1", "--optimizers", "adam,genie")


def test_demo_goes_from_a_sweep_to_a_table_and_a_report(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    done = call("demo", "--data", "digits", *SMALL, "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert "6 of 6 runs are done, 0 failed." in done.stdout
    assert re.search(r"\| ERM +\| genie ", done.stdout)
    assert "ERM + genie" in done.stdout
    assert "How to read it: Three angles" in done.stdout
    assert (out / "report.html").stat().st_size > 1000
    again = call("demo", "--data", "digits", *SMALL, "--out", str(out))
    assert "6 done already" in again.stdout


def asked(out: Path, *words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    demo.add_arguments(parser)
    return parser.parse_args(["--out", str(out), *words])


def test_by_default_a_pretrained_network_is_fine_tuned_on_each_style_in_turn(tmp_path: Path) -> None:
    arguments = asked(tmp_path)
    file = demo.write_demo(tmp_path, arguments, demo.DEMOS[arguments.data])
    planned = plan(file, RunOptions(out=str(tmp_path / "runs")))
    configs = [job.config for job in planned.jobs]
    assert len(configs) == 12
    assert {config.test_domains for config in configs} == {(0,), (1,), (2,), (3,)}
    assert {(c.backbone, c.pretrained, c.steps) for c in configs} == {("efficientnet_lite0", True, 31)}
    assert all(c.freeze_statistics for c in configs)
    rates = {c.optimizer: c.optimizer_settings["lr"] for c in configs}
    assert rates == {"sgd": 3e-3, "adam": 3e-4, "genie": 5e-3}


@pytest.mark.slow
def test_the_default_demo_runs(tmp_path: Path) -> None:
    done = call("demo", *SMALL, "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "8 of 8 runs are done, 0 failed." in done.stdout


def test_an_unknown_set_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--data", "pacs", "--out", str(tmp_path / "new")]) == 2
    assert one_sentence(capsys.readouterr().err)
    assert not (tmp_path / "new").exists()
