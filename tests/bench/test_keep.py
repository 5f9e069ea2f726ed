"""The weights that a run keeps are those of the record that it says, and the same bytes after any kill."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from genie_dg.bench.assemble import assemble
from genie_dg.bench.keep import Kept
from genie_dg.bench.train import train
from genie_dg.data.domains import DomainSet
from genie_dg.results.frame import load
from genie_dg.results.select import best_records
from genie_dg.runs.folder import DONE, TIMINGS
from genie_dg.runs.model_file import ModelFile
from genie_dg.runs.record import Record

from .test_train import BASE as SHORT

BASE = replace(SHORT, steps=13, checkpoint_every=3)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.pt"))


def check_weights(model: ModelFile, data: DomainSet) -> None:
    """The accuracies of the record are those of the weights."""
    parts = assemble(replace(model.config, average_of=()), data)
    parts.algorithm.load_state_dict(model.algorithm)
    parts.algorithm.eval()
    for k in range(len(data.domains)):
        loader = parts.evaluations[k, "out"]
        right = [parts.algorithm.predict(x).argmax(1) == y for x, y in loader]
        assert model.record["out_acc"][k] == torch.cat(right).double().mean().item()


@pytest.mark.parametrize("keep", ["best", "last", "all", "none"])
@pytest.mark.parametrize("swad", [False, True])
def test_what_is_kept_is_what_was_asked_for(keep: str, swad: bool, digits: DomainSet, tmp_path: Path) -> None:
    records = train(assemble(replace(BASE, swad=swad), digits), tmp_path, keep=keep)
    steps = [record.step for record in records]
    single = [f"model-{step}.pt" for step in steps] if keep == "all" else []
    kept = [] if keep == "none" else ["model.pt"] + ["swad.pt"] * swad
    assert names(tmp_path) == sorted([*single, *kept])
    sealed = json.loads((tmp_path / "done").read_text())["files"]
    assert set(names(tmp_path)) <= sealed.keys()
    for name in names(tmp_path):
        model = ModelFile.load(tmp_path / name)
        check_weights(model, digits)
        assert model.averaged == (name == "swad.pt")
        step = model.record["step"]
        if name == "swad.pt":
            assert model.record == json.loads((tmp_path / "swad.json").read_text())
        else:
            assert model.record == records[steps.index(step)].to_json()
        if name in single:
            assert step == int(name[6:-3])
    if keep in ("best", "all"):
        (tmp_path / "swad.json").unlink(missing_ok=True)
        frame = load(tmp_path, problems=[])
        frame = frame.with_columns(swad=False, averaged=False)
        assert ModelFile.load(tmp_path / "model.pt").record["step"] == best_records(frame)["chosen_step"][0]
    if keep == "last":
        assert ModelFile.load(tmp_path / "model.pt").record["step"] == steps[-1]


def test_at_a_tie_the_earlier_record_stays_and_sums_round_as_in_selection(digits: DomainSet) -> None:
    """0.1 + 0.2 + 0.3 is above 0.3 + 0.2 + 0.1 from left to right, and equal to it in exact sums."""
    parts = assemble(replace(BASE, test_domains=(3, 4, 5)), digits)

    def record(step: int, *values: float) -> Record:
        return Record(step, 0.0, None, None, (0.5,) * 6, (*values, 1.0, 1.0, 1.0))

    low, high = record(0, 0.3, 0.2, 0.1), record(3, 0.1, 0.2, 0.3)
    assert low.validation((3, 4, 5)) < high.validation((3, 4, 5))
    assert math.fsum((0.3, 0.2, 0.1)) == math.fsum((0.1, 0.2, 0.3))
    kept = Kept(parts, Path(), "best", {"model.pt": 0})
    assert kept.is_best([low, high])
    assert not kept.is_best([low, record(3, 0.3, 0.2, 0.1)])
    assert not kept.is_best([low, record(3, 0.3, 0.1, 0.1)])
    assert Kept(parts, Path(), "best").is_best([low])


KILLED = """
import os, random, signal, sys, time
from dataclasses import replace
from pathlib import Path
import torch
from genie_dg.bench.assemble import assemble
from genie_dg.bench.train import train
from genie_dg.data.registry import open_data
from tests.bench.test_keep import BASE

out, keep, kind, kills = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
config = replace(BASE, swad=kind == "swad", steps=31, checkpoint_every=2)
data, draw, count, runs = open_data("digits"), random.Random(kills), 0, 0

def start(folder):
    child = os.fork()
    if not child:
        torch.set_num_threads(1)
        train(assemble(config, data), folder, keep=keep)
        os._exit(0)
    return child

begun = time.monotonic()
assert os.waitpid(start(out / "whole"), 0)[1] == 0
usual = time.monotonic() - begun
while count < kills:
    run, runs = out / f"killed {runs}", runs + 1
    while count < kills and not (run / "done").exists():
        child = start(run)
        time.sleep(draw.uniform(0, 0.6 * usual))
        os.kill(child, signal.SIGKILL)
        count += os.waitpid(child, 0)[1] == signal.SIGKILL
    assert os.waitpid(start(run), 0)[1] == 0
print(count)
"""
"""Trains one run undisturbed, and others whose process is killed at random moments, so often in all."""


def check_killed(keep: str, kind: str, out: Path, kills: int) -> None:
    command = [sys.executable, "-W", "ignore", "-c", KILLED, str(out), keep, kind, str(kills)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.stdout == f"{kills}\n", done.stderr
    whole = {path.name: path.read_bytes() for path in (out / "whole").iterdir() if is_the_same(path.name)}
    models = {"best": 1, "last": 1, "all": 17}[keep] + (kind == "swad")
    assert sum(name.endswith(".pt") for name in whole) == models
    for run in out.glob("killed *"):
        left = {path.name: path.read_bytes() for path in run.iterdir() if is_the_same(path.name)}
        assert left.keys() == whole.keys()
        assert [name for name, data in whole.items() if left[name] != data] == []


def is_the_same(name: str) -> bool:
    """Of two runs; times and their digest are not."""
    return name not in (TIMINGS, DONE)


def test_files_are_the_same_after_a_few_kills(tmp_path: Path) -> None:
    check_killed("all", "swad", tmp_path, 2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "swad"])
@pytest.mark.parametrize("keep", ["best", "all", "last"])
def test_files_are_the_same_after_many_kills(keep: str, kind: str, tmp_path: Path) -> None:
    check_killed(keep, kind, tmp_path, 20)
