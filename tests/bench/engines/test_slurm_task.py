"""What a Slurm job does, without Slurm: its counting of time limits, and what it notes when a run fails."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from genie_dg.bench.engines import _slurm_task
from genie_dg.bench.engines._slurm_task import MOST_STARTS, NoProgress, RunTask
from genie_dg.bench.options import Job, RunOptions
from genie_dg.files import lock
from genie_dg.runs.config import RunConfig
from genie_dg.runs.outcome import Ending, read_outcomes

submitit = pytest.importorskip("submitit", reason='submitit is missing: pip install "genie-dg[slurm]"')

CONFIG = RunConfig(
    "digits", (5,), optimizer="sgd", backbone="mlp", optimizer_settings={"lr": 1e-2}, batch_size=8, steps=3,
    checkpoint_every=2,
)  # fmt: skip


def task_in(out: Path, config: RunConfig = CONFIG) -> tuple[Job, RunTask]:
    job = Job(config, "digits", RunOptions(out=str(out), device="cpu"))
    return job, RunTask(job)


@pytest.fixture(autouse=True)
def in_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "SUBMITIT_EXECUTOR": "slurm",
        "SLURM_JOB_ID": "14",
        "SLURM_ARRAY_JOB_ID": "12",
        "SLURM_ARRAY_TASK_ID": "3",
    }.items():
        monkeypatch.setenv(name, value)


def test_starts_in_a_row_without_a_checkpoint_end_a_run(tmp_path: Path) -> None:
    _, task = task_in(tmp_path)
    for starts in range(1, MOST_STARTS):
        task = task.checkpoint().function
        assert task.starts == starts
    with pytest.raises(NoProgress, match="without a new checkpoint; give more --time"):
        task.checkpoint()


def test_a_new_checkpoint_starts_the_count_again(tmp_path: Path) -> None:
    job, task = task_in(tmp_path)
    task = task.checkpoint().function
    job.folder.mkdir()
    (job.folder / "checkpoint.pt").write_bytes(b"x")
    assert task.checkpoint().function.starts == 0


@pytest.mark.filterwarnings("ignore")  # a task sets the filters of its process
def test_how_a_run_ended_is_noted_with_its_job(tmp_path: Path) -> None:
    bad, task = task_in(tmp_path, replace(CONFIG, optimizer_settings={"lr": 1e30}, steps=30))
    task()
    (outcome,) = read_outcomes(bad.folder)
    assert (outcome.ending, outcome.job) == (Ending.diverged, "12_3")
    good, task = task_in(tmp_path)
    task()
    assert good.done
    assert [(one.ending, one.job) for one in read_outcomes(good.folder)] == [(Ending.finished, "12_3")]


@pytest.mark.filterwarnings("ignore")
def test_a_run_that_stays_held_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_slurm_task, "LOCK_PATIENCE", 0.0)
    job, task = task_in(tmp_path)
    with lock(job.folder / "lock", "trains it"):
        task()
    (outcome,) = read_outcomes(job.folder)
    assert str(outcome).startswith("Busy: Another process (process ")
