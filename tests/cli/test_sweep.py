"""``genie-dg sweep``, ``status``, ``table`` and ``compare`` as a person types them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from genie_dg.cli.main import main

SWEEP = """
name = "small"
protocol = "domainbed"
datasets = ["digits"]
algorithms = ["ERM"]
optimizers = ["adam", "genie"]
test_domains = [["0 degrees"], ["75 degrees"]]
hparams = 2
trials = 1

[overrides]
steps = 6
checkpoint_every = 3
backbone = "mlp"
batch_size = 8
"""


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    file = tmp_path / "small.toml"
    file.write_text(SWEEP)
    return file


def shown(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


def test_from_a_file_to_a_table(sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "runs")
    assert main(["sweep", str(sweep), "--out", out, "--dry-run"]) == 0
    text = shown(capsys)
    assert "8 runs under domainbed, 0 done already, 48 steps ahead" in text
    assert f"No run of it was timed in {out} yet; once some have run, genie-dg status" in text
    assert not (tmp_path / "runs").exists(), "a dry run starts nothing"
    assert main(["sweep", str(sweep), "--out", out, "--engine", "here", "--track", "tensorboard"]) == 0
    assert "8 of 8 runs are done, 0 failed." in shown(capsys)
    assert (tmp_path / "runs" / "sweeps" / "small.toml").read_bytes() == sweep.read_bytes()
    assert main(["status", out]) == 0
    assert "small: 8 runs: 8 done" in shown(capsys)
    for method in ("training-domain", "oracle", "leave-one-domain-out"):
        for form in ("md", "tex", "csv"):
            assert main(["table", out, "--select", method, "--format", form]) == 0
            assert "genie" in shown(capsys)
    assert main(["compare", out]) == 0
    assert "ERM + genie" in shown(capsys)
    assert main(["sweep", str(sweep), "--out", out, "--engine", "here"]) == 0
    assert "8 done already, 0 steps ahead" in shown(capsys)
    runs = [folder for folder in (tmp_path / "runs").iterdir() if folder.name != "sweeps"]
    assert all(list((folder / "tensorboard").glob("events*")) for folder in runs)
    protocols = {json.loads((folder / "config.json").read_text())["protocol"] for folder in runs}
    assert protocols == {"domainbed/changed"}, "an override must not pass for the protocol"


ROWS = """
from dataclasses import replace
from genie_dg.plugins import OPTIMIZERS, Setting

sam = OPTIMIZERS["sam"]
OPTIMIZERS.register(replace(sam, name="sam-sgd", space={**sam.space, "base": Setting("sgd")}))
"""


def test_a_sweep_names_the_files_that_its_rows_come_from(tmp_path: Path) -> None:
    """In processes of its own, because a row that is registered stays."""
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "rows.py").write_text(ROWS)
    words = SWEEP.replace('["adam", "genie"]', '["sam", "sam-sgd"]').replace("hparams = 2", "hparams = 1")
    words = words.replace("[overrides]", 'plugins = ["rows.py"]\n\n[overrides]')
    (tmp_path / "study" / "sweep.toml").write_text(words)
    command = [sys.executable, "-m", "genie_dg", "sweep", str(tmp_path / "study" / "sweep.toml")]
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "runs")], capture_output=True, text=True, timeout=300, cwd=tmp_path
    )
    assert "4 of 4 runs are done, 0 failed." in done.stdout, done.stderr
    configs = [json.loads(path.read_text()) for path in sorted((tmp_path / "runs").glob("*/config.json"))]
    assert sorted(config["optimizer"] for config in configs) == ["sam", "sam", "sam-sgd", "sam-sgd"]


def test_ctrl_c_leaves_everything_resumable(sweep: Path, tmp_path: Path) -> None:
    """A real SIGINT to the real command with its pool of workers, which keep silent."""
    sweep.write_text(SWEEP.replace("steps = 6", "steps = 2000"))
    out = tmp_path / "runs"
    words = f"-m genie_dg.cli.main sweep {sweep} --out {out} --workers 1"
    command = [sys.executable, *words.split()]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, **pipes, text=True, start_new_session=True)  # type: ignore[call-overload]
    deadline = time.monotonic() + 120
    while not list(out.glob("*/checkpoint.pt")):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)  # from a terminal it goes to the workers as well
    text, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert errors.split() == ["genie-dg:", "stopped", "by", "Ctrl-C."]
    assert "the same command goes on from the last checkpoints" in " ".join(text.split())
    assert main(["status", str(out)]) == 0


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('"75 degrees"', '"76 degrees"', "did you mean '75 degrees'?"),
        ('name = "small"', 'name = "small', "small.toml"),
    ],
)
def test_a_wrong_file_is_one_sentence_before_any_work(
    old: str, new: str, sentence: str, sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep.write_text(SWEEP.replace(old, new))
    assert main(["sweep", str(sweep), "--out", str(tmp_path / "runs")]) == 2
    errors = capsys.readouterr().err
    assert sentence in errors
    assert errors.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_a_protocol_of_the_users_own_is_kept_with_what_was_launched(sweep: Path, tmp_path: Path) -> None:
    own = tmp_path / "mine.toml"
    own.write_text('name = "mine"\nbase = "domainbed"\n')
    text = SWEEP.replace('"domainbed"', '"mine.toml"').replace("hparams = 2", "hparams = 1")
    sweep.write_text(text.replace('["adam", "genie"]', '["adam"]').replace("steps = 6", "steps = 2"))
    assert main(["sweep", str(sweep), "--out", str(tmp_path / "runs"), "--engine", "here", "--quiet"]) == 0
    kept = {path.name: path.read_bytes() for path in (tmp_path / "runs" / "sweeps").glob("*.toml")}
    assert kept == {"small.toml": sweep.read_bytes(), "small.protocol.toml": own.read_bytes()}


def test_without_slurm_nothing_is_opened_or_written(
    sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine without Slurm, as most are; a dry run needs none."""
    monkeypatch.setenv("PATH", str(tmp_path))
    words = ["sweep", str(sweep), "--out", str(tmp_path / "runs"), "--engine", "slurm"]
    assert main(words) == 2
    errors = capsys.readouterr().err
    assert errors.startswith("genie-dg: --engine slurm needs s")
    assert errors.count("\n") == 1
    assert not (tmp_path / "runs").exists()
    assert main([*words, "--dry-run"]) == 0
