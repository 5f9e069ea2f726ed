"""A sweep on real pictures, killed twenty times: every cell of its tables is computed again from a model file.

``GENIE_DG_PACS=FOLDER`` names PACS, or another folder ``<domain>/<class>/<picture>`` of three domains or more.
"""

from __future__ import annotations

import csv
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from genie_dg.cli.main import main
from genie_dg.results.select import METHODS

PICTURES = os.environ.get("GENIE_DG_PACS", "")
KILLS, EACH, DOMAINS = 20, 8, 3
SWEEP = """
name = "real"
protocol = "domainbed"
datasets = ["pictures"]
algorithms = ["ERM"]
optimizers = ["adam", "genie"]
test_domains = [[0], [1], [0, 1], [0, 2], [1, 2]]
hparams = 2
trials = 1

[overrides]
backbone = "efficientnet_lite0"
image_size = 64
batch_size = 4
steps = 5
checkpoint_every = 2
"""


def copy_some(source: Path, target: Path) -> None:
    """The first pictures of each class in the first domains, which are domains of the copy."""
    for domain in sorted(path for path in source.iterdir() if path.is_dir())[:DOMAINS]:
        for label in sorted(path for path in domain.iterdir() if path.is_dir()):
            folder = target / domain.name / label.name
            folder.mkdir(parents=True)
            for picture in sorted(label.iterdir())[:EACH]:
                shutil.copy(picture, folder)


def start(*words: str) -> subprocess.Popen[bytes]:
    """The sweep in a process group of its own."""
    line = [sys.executable, "-m", "genie_dg.cli.main", "sweep", "sweep.toml", "--workers", "2", *words]
    return subprocess.Popen(line, stdout=subprocess.DEVNULL, start_new_session=True)


def train_with_kills(usual: float, out: Path) -> None:
    """The whole group is killed at random moments; when the sweep is done too early, runs are thrown away."""
    moments, killed, begun = random.Random(0), 0, 0
    while killed < KILLS:
        before = len(list(out.glob("*/records.jsonl")))
        process, deadline = start("--keep", "all", "--out", str(out)), time.monotonic() + usual
        if moments.random() < 0.8:  # after something was done, else anywhere in the start
            while time.monotonic() < deadline and len(list(out.glob("*/records.jsonl"))) <= before:
                time.sleep(0.05)
        time.sleep(moments.uniform(0, usual / 10))
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            killed += 1
        else:
            assert process.returncode == 0
            for folder in moments.sample([path.parent for path in sorted(out.glob("*/done"))], 8):
                shutil.rmtree(folder)
        process.wait()
        begun += any(not (path.parent / "done").exists() for path in out.glob("*/checkpoint*.pt"))
    assert begun > 0, "no kill left a run in its middle"
    assert start("--keep", "all", "--out", str(out)).wait() == 0


def records(out: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in out.glob("*/records.jsonl")}


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert main(list(words)) == 0
    return capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.skipif(not PICTURES, reason="needs real pictures; name their folder in GENIE_DG_PACS")
def test_every_cell_is_computed_again_exactly_from_the_model_that_best_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    copy_some(Path(PICTURES), tmp_path / "pictures")
    monkeypatch.chdir(tmp_path)
    Path("sweep.toml").write_text(SWEEP)
    began = time.monotonic()
    assert start("--keep", "none", "--out", "whole").wait() == 0
    train_with_kills(time.monotonic() - began, Path("runs"))
    assert len(records(Path("runs"))) == 20
    assert records(Path("runs")) == records(Path("whole"))

    again: dict[str, float] = {}
    cells = steps = 0
    for method in METHODS:
        named = {}
        for best in json.loads(answer(capsys, "best", "runs", "--select", method, "--json")):
            file = best["file"]
            assert file, best["note"]
            if file not in again:
                text = answer(capsys, "evaluate", file, "pictures", "--as-table", "--json")
                again[file] = json.loads(text)["mean_over_domains"]
            named[best["row"].split()[-1], frozenset(best["test"])] = again[file]
            steps |= 1 << best["step"]
        domains = sorted(path.name for path in Path("pictures").iterdir())
        text = answer(capsys, "table", "runs", "--select", method, "--format", "csv")
        for line in csv.DictReader(io.StringIO(text)):
            if line["column"] not in domains or line["table"] not in ("domains", "sources"):
                continue  # means of the cells that are looked at
            alone = {line["column"]}
            tested = frozenset(alone if line["table"] == "domains" else {*domains} - alone)
            assert float(line["accuracy"]) == named[line["optimizer"], tested]
            cells += 1
    assert cells == 3 * 4 + 2 * 6
    assert steps.bit_count() > 1, "not only one and the same record is chosen"
