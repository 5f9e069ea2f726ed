"""How far a sweep is: the state of each run from its folder, the list of its runs, the time left."""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from genie_dg.bench.jobs import OpenSets, run_job
from genie_dg.bench.options import Job, RunOptions
from genie_dg.bench.status import (
    SILENT,
    RemainingTime,
    RunState,
    RunStatus,
    describe_run,
    duration,
    read_sweeps,
    remaining_time,
    status_of,
)
from genie_dg.files import holder_file, lock
from genie_dg.runs.config import RunConfig
from genie_dg.runs.outcome import Ending, Outcome, note_outcome
from genie_dg.runs.sweep_list import write_list

CONFIG = RunConfig(
    "digits", (5,), optimizer="adam", backbone="mlp", optimizer_settings={"lr": 1e-3},
    batch_size=8, steps=12, checkpoint_every=6,
)  # fmt: skip


def test_the_state_of_a_run_is_read_from_its_folder(tmp_path: Path) -> None:
    job = Job(CONFIG, "digits", RunOptions(out=str(tmp_path)))
    assert status_of(job.config, tmp_path).state == "missing"

    class Stop(KeyboardInterrupt):
        pass

    def stop(done: int, record: object) -> None:
        if done == 8:
            assert status_of(job.config, tmp_path).state == "running"
            raise Stop

    with pytest.raises(Stop):
        run_job(job, OpenSets(), stop)
    stopped = status_of(job.config, tmp_path)
    assert (stopped.state, stopped.steps) == ("stopped", 7)
    with (job.folder / "timings.jsonl").open("a") as file:
        file.write('{"step": 8, "sec')
    problems: list[str] = []
    left = remaining_time([status_of(job.config, tmp_path, problems)])
    assert left is not None
    assert left.seconds == pytest.approx(5 * stopped.seconds / 7)
    assert len(problems) == 1
    assert problems[0].startswith(f"Line 3 of {job.folder / 'timings.jsonl'} is not a JSON object (")
    run_job(job, OpenSets())
    assert status_of(job.config, tmp_path).state == "done"
    assert remaining_time([status_of(job.config, tmp_path)], workers=2) is None


def test_a_run_of_another_machine_is_unknown_here(tmp_path: Path) -> None:
    folder = tmp_path / CONFIG.run_id
    with lock(folder / "lock", "trains"):
        assert status_of(CONFIG, tmp_path).state == "running"
        file = holder_file(folder / "lock")
        file.write_text(json.dumps({**json.loads(file.read_text()), "host": "node7", "pid": 12}))
        assert status_of(CONFIG, tmp_path).state == "running", "it gave a sign of life a moment ago"
        os.utime(file, (time.time() - SILENT - 1,) * 2)
        state = status_of(CONFIG, tmp_path)
        given = status_of(CONFIG, tmp_path, submitted=("12_3", "today"))
    assert (given.state, given.reason) == ("submitted", "Slurm job 12_3 of today")
    assert state.state == "unknown"
    assert re.fullmatch(
        r"it was taken by process 12 on node7, since .*; look there whether it still runs", state.reason
    )


def test_a_run_in_a_queue_is_submitted_until_its_job_has_failed(tmp_path: Path) -> None:
    folder, given = tmp_path / CONFIG.run_id, ("12_3", "today")
    assert status_of(CONFIG, tmp_path, submitted=given).state == "submitted"
    folder.mkdir()
    note_outcome(folder, Outcome(Ending.failed, "an older job", job="11_0"))
    assert status_of(CONFIG, tmp_path, submitted=given).state == "submitted"
    note_outcome(folder, Outcome(Ending.failed, "this job", job="12_3"))
    failed = status_of(CONFIG, tmp_path, submitted=given)
    assert (failed.state, failed.reason) == ("failed", "this job")
    with lock(folder / "lock", "trains"):
        assert status_of(CONFIG, tmp_path, submitted=given).state == "running"
    (folder / "done").touch()
    assert status_of(CONFIG, tmp_path, submitted=given).state == "done"


def test_a_sweep_is_remembered_and_what_is_not_a_list_is_left_out_in_a_sentence(tmp_path: Path) -> None:
    configs = [replace(CONFIG, test_domains=(k,), oracle="best" if k else "") for k in range(3)]
    write_list(tmp_path, "mine", configs)
    write_list(tmp_path, "other", configs[:1])
    assert read_sweeps(tmp_path) == {"mine": configs, "other": configs[:1]}
    (tmp_path / "sweeps" / "torn.json").write_text('{"name": "x", "ru')
    (tmp_path / "sweeps" / "folder.json").mkdir()
    problems: list[str] = []
    assert read_sweeps(tmp_path, problems) == {"mine": configs, "other": configs[:1]}
    assert [Path(problem.partition(" ")[0]).name for problem in problems] == ["folder.json", "torn.json"]
    assert all(problem.endswith("it is left out: start the sweep again to repair it.") for problem in problems)
    assert read_sweeps(tmp_path / "nowhere") == {}


def test_the_time_left_is_that_of_runs_of_one_kind_and_of_as_many_workers_as_run() -> None:
    slow = replace(CONFIG, backbone="cnn")
    states = [
        RunStatus(CONFIG, RunState.done, 12, 6.0),
        RunStatus(slow, RunState.running, 6, 12.0),
        RunStatus(slow, RunState.missing),
    ]
    left = remaining_time(states)
    assert left == RemainingTime(6 * 2 + 12 * 2, 1, 2)
    assert str(left) == "about 36 seconds left with 1 at a time, from the timings of 2 runs"
    assert remaining_time([*states, RunStatus(slow, RunState.running, 6, 12.0)]) == RemainingTime(24, 2, 3)
    assert remaining_time(states, workers=2) == RemainingTime(24, 2, 2)
    other = replace(CONFIG, optimizer="sam")  # none of its kind was timed
    assert remaining_time([*states[:2], RunStatus(other, RunState.missing)]) == RemainingTime(12 + 12, 1, 2)
    assert remaining_time([RunStatus(CONFIG, RunState.missing)], workers=1) is None
    assert remaining_time(states[:1]) is None


def test_a_run_and_durations_in_words() -> None:
    names = [f"{angle} degrees" for angle in range(0, 90, 15)]
    assert describe_run(CONFIG, names) == "digits ERM adam without 75 degrees, trial 0, draw 0"
    assert describe_run(CONFIG, names[:2]) == "digits ERM adam without 5, trial 0, draw 0"
    assert [duration(x) for x in (89, 90, 5399, 5400)] == ["89 seconds", "2 minutes", "90 minutes", "1.5 hours"]
