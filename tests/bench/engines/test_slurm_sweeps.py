"""``genie-dg sweep --engine slurm`` as typed, on a real Slurm: stopped, started twice."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from genie_dg.cli.main import main
from genie_dg.runs.submissions import place_of, read_submissions
from tests.slurm import Slurm, bytes_of, wait_for

SWEEP = """
name = "mine"
protocol = "domainbed"
datasets = ["digits"]
algorithms = ["ERM"]
optimizers = {optimizers}
test_domains = [[0], [5]]
hparams = {hparams}
trials = {trials}

[overrides]
steps = {steps}
checkpoint_every = {every}
backbone = "mlp"
batch_size = 8
"""


def sweep_words(folder: Path, out: str, **values: object) -> list[str]:
    file = folder / "mine.toml"
    file.write_text(SWEEP.format(**values))
    return ["sweep", str(file), "--out", str(folder / out), "--device", "cpu"]


def start(words: list[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "genie_dg.cli.main", *words, "--engine", "slurm"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_ctrl_c_leaves_the_jobs_and_the_same_command_finds_them(
    cluster: Slurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Then a launcher that is killed before it could write down the id of what it has submitted."""
    values = {"optimizers": ["adam", "genie"], "hparams": [0], "trials": 1, "steps": 1000, "every": 50}
    words, out = sweep_words(tmp_path, "runs", **values), tmp_path / "runs"
    with start(words) as launcher:
        wait_for(lambda: list(out.glob("*/checkpoint.pt")))
        launcher.send_signal(signal.SIGINT)
        text, errors = launcher.communicate(timeout=60)
    assert (launcher.returncode, errors.strip()) == (130, "genie-dg: stopped by Ctrl-C.")
    (made,) = read_submissions(out, "mine")
    assert f"Still in the queue: 4 runs in Slurm job {made.job} " in text
    assert main(["status", str(out), "--all"]) == 0
    shown = capsys.readouterr().out
    assert "submitted" in shown
    assert f": Slurm job {made.job}_" in shown
    book = place_of(out, "mine")
    book.write_text(book.read_text().splitlines()[0] + "\n")
    assert main([*words, "--engine", "slurm"]) == 0
    shown = capsys.readouterr().out
    assert f"Already in the queue: 4 runs in Slurm job {made.job} " in shown
    assert "4 of 4 runs are done, 0 failed." in shown
    assert read_submissions(out, "mine") == [made], "nothing was submitted twice"
    assert main([*sweep_words(tmp_path, "here", **values), "--engine", "here"]) == 0
    assert bytes_of(out) == bytes_of(tmp_path / "here")


@pytest.mark.slow
def test_two_launchers_submit_no_run_twice(cluster: Slurm, tmp_path: Path) -> None:
    values = {"optimizers": ["adam"], "hparams": [0], "trials": 1, "steps": 20, "every": 10}
    words = sweep_words(tmp_path, "runs", **values)
    with start(words) as first, start(words) as second:
        texts = [one.communicate(timeout=300) for one in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0), texts
    assert len(read_submissions(tmp_path / "runs", "mine")) == 1
