"""One sweep in every way: however many workers, here, on Ray, through fifty kills, the same bytes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from genie_dg.cli.main import main
from tests.slurm import bytes_of

SWEEP = """
name = "same"
protocol = "domainbed"
datasets = ["digits"]
algorithms = ["ERM"]
optimizers = ["adam", "sgd", "genie"]
test_domains = [[0], [5]]
hparams = [0]
trials = 2

[overrides]
steps = 24
checkpoint_every = 6
backbone = "{backbone}"
batch_size = 16
"""
KILLS = 50


def command(folder: Path, out: Path) -> list[list[str]]:
    """The two sweeps, of twelve runs each."""
    files = []
    for backbone in ("mlp", "cnn"):
        files.append(folder / f"{backbone}.toml")
        files[-1].write_text(SWEEP.format(backbone=backbone))
    return [["sweep", str(file), "--out", str(out), "--device", "cpu", "--retries", "1000"] for file in files]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("here")
    for words in command(folder, folder / "runs"):
        assert main([*words, "--engine", "here"]) == 0
    found = bytes_of(folder / "runs")
    assert len(found) == 48
    return found


@pytest.mark.slow
@pytest.mark.parametrize("more", ["--workers 1", "--workers 2", "--workers 4", "--engine ray"])
def test_the_engine_and_the_number_of_workers_change_no_byte(
    more: str, expected: dict[str, bytes], tmp_path: Path
) -> None:
    for words in command(tmp_path, tmp_path / "runs"):
        line = [sys.executable, "-m", "genie_dg.cli.main", *words, *more.split()]
        done = subprocess.run(line, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert bytes_of(tmp_path / "runs") == expected


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, and what these have."""
    with suppress(FileNotFoundError, ProcessLookupError):
        children = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        return [one for child in children for one in (child, *descendants(child))]
    return []


def start(words: list[str]) -> subprocess.Popen[bytes]:
    """A launcher, with its resource tracker, its fork server and its two workers."""
    launcher = subprocess.Popen(
        [sys.executable, "-m", "genie_dg.cli.main", *words, "--workers", "2"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while len(descendants(launcher.pid)) < 4 and launcher.poll() is None:
        time.sleep(0.05)
    return launcher


@pytest.mark.slow
def test_fifty_kills_of_workers_servers_and_launchers_change_no_byte(
    expected: dict[str, bytes], tmp_path: Path
) -> None:
    """SIGKILL at random moments to any process of the sweep; after the launcher's, the same command again.

    A sweep that is done before its share of kills begins anew in another folder.
    """
    moments, killed, outs = random.Random(0), 0, [tmp_path / "runs-0"]
    for sweep in range(2):
        launcher = start(command(tmp_path, outs[-1])[sweep])
        while killed < KILLS // 2 * (sweep + 1):
            time.sleep(moments.uniform(0.0, 1.0))
            if launcher.poll() is None:
                victims = [launcher.pid, *descendants(launcher.pid)]
                with suppress(ProcessLookupError):
                    os.kill(moments.choice([*victims[:1], *victims[1:] * 4]), signal.SIGKILL)
                    killed += 1
                time.sleep(0.05)
            if launcher.poll() is not None:
                assert launcher.returncode in (0, -signal.SIGKILL)
                if launcher.returncode == 0:
                    outs.append(tmp_path / f"runs-{len(outs)}")
                launcher = start(command(tmp_path, outs[-1])[sweep])
        launcher.kill()
        launcher.wait()
    assert killed == KILLS
    for out in outs:
        for words in command(tmp_path, out):
            assert main([*words, "--workers", "2"]) == 0
        assert bytes_of(out) == expected
