"""One sweep in every way: however many workers, here, in processes, on Ray, the same bytes."""

from __future__ import annotations

import subprocess
import sys
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
@pytest.mark.parametrize("more", ["--workers 2", "--engine ray"])
def test_the_engine_and_the_number_of_workers_change_no_byte(
    more: str, expected: dict[str, bytes], tmp_path: Path
) -> None:
    for words in command(tmp_path, tmp_path / "runs"):
        line = [sys.executable, "-m", "genie_dg.cli.main", *words, *more.split()]
        done = subprocess.run(line, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert bytes_of(tmp_path / "runs") == expected
