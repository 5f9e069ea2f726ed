"""What a Slurm job does, without Slurm: its counting of time limits, and what it notes when a run fails."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from genie_dg.bench.engines import _slurm_task
from genie_dg.bench.engines._slurm_task import LIMITS, RunTask, mark
from genie_dg.bench.options import Job, RunOptions
from genie_dg.files import lock
from genie_dg.runs.config import RunConfig

submitit = pytest.importorskip("submitit", reason='submitit is missing: pip install "genie-dg[slurm]"')

CONFIG = RunConfig(
    "digits", (5,), optimizer="sgd", backbone="mlp", optimizer_settings={"lr": 1e-2}, batch_size=8, steps=3,
    checkpoint_every=2,
)  # fmt: skip


def task_in(out: Path, signal_after: float = 0.0, config: RunConfig = CONFIG) -> tuple[Job, RunTask]:
    job = Job(config, "digits", RunOptions(out=str(out), device="cpu"))
    return job, RunTask(job.to_json(), 2, signal_after)


@pytest.fixture(autouse=True)
def in_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "SUBMITIT_EXECUTOR": "slurm",
        "SLURM_JOB_ID": "14",
        "SLURM_ARRAY_JOB_ID": "12",
        "SLURM_ARRAY_TASK_ID": "3",
    }.items():
        monkeypatch.setenv(name, value)


def test_limits_in_a_row_without_a_checkpoint_end_a_run(tmp_path: Path) -> None:
    _, task = task_in(tmp_path)
    for limits in range(1, LIMITS):
        again = task.checkpoint()
        assert (again.function.limits, again.function.attempt) == (limits, 2)
        task = again.function
    assert task.checkpoint() is None


def test_a_new_checkpoint_starts_the_count_again_and_a_preemption_does_not_count(tmp_path: Path) -> None:
    job, task = task_in(tmp_path)
    task = task.checkpoint().function
    job.folder.mkdir()
    (job.folder / "checkpoint.pt").write_bytes(b"x")
    assert mark(job.folder) != (0, 0)
    assert task.checkpoint().function.limits == 0
    _, early = task_in(tmp_path, signal_after=1e12)
    early.mark = mark(job.folder)
    for _ in range(2 * LIMITS):
        early = early.checkpoint().function
        early.mark = mark(job.folder)
    assert early.limits == 0


@pytest.mark.filterwarnings("ignore")  # a task sets the filters of its process
def test_a_failure_is_noted_with_its_job_and_a_success_is_done(tmp_path: Path) -> None:
    bad, task = task_in(tmp_path, config=replace(CONFIG, optimizer_settings={"lr": 1e30}, steps=30))
    reason = task()
    assert "lower the learning rate of sgd" in reason
    (line,) = (bad.folder / "failures.jsonl").read_text().splitlines()
    assert json.loads(line) == {"attempt": 2, "reason": reason, "job": "12_3"}
    good, task = task_in(tmp_path)
    assert task() == ""
    assert good.done
    assert not (good.folder / "failures.jsonl").exists()


@pytest.mark.filterwarnings("ignore")
def test_a_run_that_stays_held_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_slurm_task, "HELD", 0.0)
    job, task = task_in(tmp_path)
    with lock(job.folder / "lock", "trains it"):
        assert task().startswith("Busy: Another process (process ")
