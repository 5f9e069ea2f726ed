"""Time and accuracy by test domain, from runs written by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from genie_dg.results.frame import load
from genie_dg.runs.config import RunConfig, canonical
from paper.experiments import EXPERIMENTS, sweeps
from paper.iteration_tables import measured_by_domain


def write_run(runs: Path, test: int, trial: int, accuracies: tuple[float, float], spent: float) -> None:
    """A run of two records, at steps 0 and 9, that took ``spent`` seconds each."""
    config = RunConfig("toy", (test,), optimizer="adam", steps=10, trial_seed=trial)
    folder = runs / config.run_id
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(canonical(config), encoding="utf-8")
    (folder / "meta.json").write_text('{"domains": ["a", "b"]}', encoding="utf-8")
    held = [0.5, 0.5]
    records = []
    for step, accuracy in zip((0, 9), accuracies, strict=True):
        tested = [0.5, 0.5]
        tested[test] = accuracy
        records.append(json.dumps({"step": step, "in_acc": tested, "out_acc": held}))
        held = [0.75, 0.75]  # the second record is the better one on the training domain
    (folder / "records.jsonl").write_text("\n".join(records) + "\n", encoding="utf-8")
    timings = [json.dumps({"step": step, "seconds": spent}) for step in (0, 9)]
    (folder / "timings.jsonl").write_text("\n".join(timings) + "\n", encoding="utf-8")
    (folder / "done").touch()


def test_means_errors_and_seconds_by_domain(tmp_path: Path) -> None:
    write_run(tmp_path, 0, 0, (0.2, 0.6), 1.0)
    write_run(tmp_path, 0, 1, (0.4, 0.8), 2.0)
    write_run(tmp_path, 1, 0, (0.1, 0.5), 4.0)
    write_run(tmp_path, 1, 1, (0.1, 0.9), 4.0)
    (numbers,) = measured_by_domain(load(tmp_path), (0, 9)).values()
    found = {(number.row.rpartition(",")[2].strip(), number.column): number for number in numbers}
    early, late = "1/3 of the steps", "2/3 of the steps"
    assert found[early, "Acc[a]"].value == pytest.approx(30.0)
    assert found[late, "Acc[a]"].value == pytest.approx(70.0)
    assert found[late, "Acc[a]"].error == pytest.approx(10.0 / 2**0.5)  # of 60 and 80
    assert found[late, "Acc[b]"].error == pytest.approx(20.0 / 2**0.5)  # of 50 and 90
    assert found[late, "Acc"].value == pytest.approx(70.0)
    assert found[late, "Acc"].error == pytest.approx(15.0 / 2**0.5)  # of (60 + 50) / 2 and (80 + 90) / 2
    assert found[early, "Time[a]"].value == 1.5
    assert found[late, "Time[a]"].value == 3.0
    assert found[late, "Time"].value == pytest.approx((3.0 + 8.0) / 2)
    assert found[late, "s per step[b]"].value == pytest.approx(0.8)
    columns = list(dict.fromkeys(number.column for number in numbers))
    assert [set(columns[:3]), columns[3]] == [{"steps", "Acc[a]", "Acc[b]"}, "Acc"]
    assert [columns[6], columns[9]] == ["Time", "s per step"]  # the mean stands behind its domains


def test_the_miniature_is_read_at_its_own_levels() -> None:
    experiment = EXPERIMENTS["iterations"]
    ((_, sweep),) = sweeps(experiment, "cpu")
    levels = experiment.levels_of("cpu")
    assert (sweep.datasets, sweep.trials) == (["digits"], 3)
    assert sweep.overrides["steps"] == levels[-1] + 1
    assert all(level % sweep.overrides["checkpoint_every"] == 0 for level in levels)
    assert sweep.optimizer_settings["sgd"]["lr"] == 0.1  # not the authors' 5e-5
    assert experiment.levels_of("cpu", "styleshapes") == (40, 80, 120)
    assert sweeps(experiment, "cpu", "styleshapes")[0][1].optimizer_settings["sgd"]["lr"] == 5e-5
