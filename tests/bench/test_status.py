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
    Left,
    State,
    describe,
    duration,
    remember,
    remembered,
    state_of,
    time_left,
)
from genie_dg.files import append_line, holder_file, lock
from genie_dg.runs.config import RunConfig

CONFIG = RunConfig(
    "digits", (5,), optimizer="adam", backbone="mlp", optimizer_settings={"lr": 1e-3},
    batch_size=8, steps=12, checkpoint_every=6,
)  # fmt: skip


def test_the_state_of_a_run_is_read_from_its_folder(tmp_path: Path) -> None:
    job = Job(CONFIG, "digits", RunOptions(out=str(tmp_path)))
    assert state_of(job.config, tmp_path).kind == "missing"

    class Stop(Exception):
        pass

    def stop(done: int, record: object) -> None:
        if done == 8:
            assert state_of(job.config, tmp_path).kind == "running"
            raise Stop

    with pytest.raises(Stop):
        run_job(job, OpenSets(), stop)
    stopped = state_of(job.config, tmp_path)
    assert (stopped.kind, stopped.steps) == ("stopped", 7)
    with (job.folder / "timings.jsonl").open("a") as file:
        file.write('{"step": 8, "sec')
    problems: list[str] = []
    left = time_left([state_of(job.config, tmp_path, problems)])
    assert left is not None
    assert left.seconds == pytest.approx(5 * stopped.seconds / 7)
    assert len(problems) == 1
    assert problems[0].startswith(f"Line 3 of {job.folder / 'timings.jsonl'} is not a JSON object (")
    run_job(job, OpenSets())
    assert state_of(job.config, tmp_path).kind == "done"
    assert time_left([state_of(job.config, tmp_path)], workers=2) is None


def test_a_run_of_another_machine_is_unknown_here(tmp_path: Path) -> None:
    folder = tmp_path / CONFIG.run_id
    with lock(folder / "lock", "trains"):
        assert state_of(CONFIG, tmp_path).kind == "running"
        file = holder_file(folder / "lock")
        file.write_text(json.dumps({**json.loads(file.read_text()), "host": "node7", "pid": 12}))
        assert state_of(CONFIG, tmp_path).kind == "running", "it gave a sign of life a moment ago"
        os.utime(file, (time.time() - SILENT - 1,) * 2)
        state = state_of(CONFIG, tmp_path)
        given = state_of(CONFIG, tmp_path, submitted=("12_3", "today"))
    assert (given.kind, given.reason) == ("submitted", "Slurm job 12_3 of today")
    assert state.kind == "unknown"
    assert re.fullmatch(
        r"it was taken by process 12 on node7, since .*; look there whether it still runs", state.reason
    )


def test_a_run_in_a_queue_is_submitted_until_its_job_has_failed(tmp_path: Path) -> None:
    folder, given = tmp_path / CONFIG.run_id, ("12_3", "today")
    assert state_of(CONFIG, tmp_path, submitted=given).kind == "submitted"
    folder.mkdir()
    append_line(folder / "failures.jsonl", {"attempt": 1, "reason": "an older job", "job": "11_0"})
    assert state_of(CONFIG, tmp_path, submitted=given).kind == "submitted"
    append_line(folder / "failures.jsonl", {"attempt": 2, "reason": "this job", "job": "12_3"})
    failed = state_of(CONFIG, tmp_path, submitted=given)
    assert (failed.kind, failed.reason) == ("failed", "this job")
    with lock(folder / "lock", "trains"):
        assert state_of(CONFIG, tmp_path, submitted=given).kind == "running"
    (folder / "done").touch()
    assert state_of(CONFIG, tmp_path, submitted=given).kind == "done"


def test_a_sweep_is_remembered_and_what_is_not_a_list_is_left_out_in_a_sentence(tmp_path: Path) -> None:
    configs = [replace(CONFIG, test_domains=(k,), oracle="best" if k else "") for k in range(3)]
    remember("mine", configs, tmp_path)
    remember("other", configs[:1], tmp_path)
    assert remembered(tmp_path) == {"mine": configs, "other": configs[:1]}
    odd = {"other.json": '{"name": "other", "runs": 3}', "list.json": "[]", "torn.json": '{"name": "x", "ru'}
    for name, text in odd.items():
        (tmp_path / "sweeps" / name).write_text(text)
    (tmp_path / "sweeps" / "folder.json").mkdir()
    (tmp_path / "sweeps" / "nowhere.json").symlink_to("away")
    problems: list[str] = []
    assert remembered(tmp_path, problems) == {"mine": configs}
    named = [Path(problem.partition(" ")[0]).name for problem in problems]
    assert named == sorted([*odd, "folder.json", "nowhere.json"])
    assert all(problem.endswith("it is left out: start the sweep again to repair it.") for problem in problems)
    assert remembered(tmp_path / "nowhere") == {}


def test_the_time_left_is_that_of_runs_of_one_kind_and_of_as_many_workers_as_run() -> None:
    slow = replace(CONFIG, backbone="cnn")
    states = [State(CONFIG, "done", 12, 6.0), State(slow, "running", 6, 12.0), State(slow, "missing")]
    left = time_left(states)
    assert left == Left(6 * 2 + 12 * 2, 1, 2)
    assert str(left) == "about 36 seconds left with 1 at a time, from the timings of 2 runs"
    assert time_left([*states, State(slow, "running", 6, 12.0)]) == Left(24, 2, 3)
    assert time_left(states, workers=2) == Left(24, 2, 2)
    other = replace(CONFIG, optimizer="sam")  # none of its kind was timed
    assert time_left([*states[:2], State(other, "missing")]) == Left(12 + 12, 1, 2)
    assert time_left([State(CONFIG, "missing")], workers=1) is None
    assert time_left(states[:1]) is None


def test_runs_and_durations_in_words() -> None:
    assert describe(CONFIG) == "digits ERM adam without 5, trial 0, draw 0"
    names = [f"{angle} degrees" for angle in range(0, 90, 15)]
    assert describe(CONFIG, names) == "digits ERM adam without 75 degrees, trial 0, draw 0"
    assert describe(CONFIG, names[:2]) == "digits ERM adam without 5, trial 0, draw 0"
    assert [duration(x) for x in (89, 90, 5399, 5400)] == ["89 seconds", "2 minutes", "90 minutes", "1.5 hours"]
