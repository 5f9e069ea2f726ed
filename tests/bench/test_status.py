"""How far a sweep is: the state of each run from its folder, the list of its runs, the time left."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from genie_dg.bench.jobs import OpenSets, run_job
from genie_dg.bench.options import Job, RunOptions
from genie_dg.bench.status import State, describe, duration, remember, remembered, state_of, time_left
from genie_dg.check import InputError
from genie_dg.runs.record import RunConfig

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
    left = time_left([state_of(job.config, tmp_path)], workers=1)
    assert left == pytest.approx(5 * stopped.seconds / 7)
    run_job(job, OpenSets())
    assert state_of(job.config, tmp_path).kind == "done"
    assert time_left([state_of(job.config, tmp_path)], workers=2) == 0


def test_a_sweep_is_remembered_and_a_damaged_list_is_named(tmp_path: Path) -> None:
    configs = [replace(CONFIG, test_domains=(k,), oracle="best" if k else "") for k in range(3)]
    remember("mine", configs, tmp_path)
    remember("other", configs[:1], tmp_path)
    assert remembered(tmp_path) == {"mine": configs, "other": configs[:1]}
    (tmp_path / "sweeps" / "other.json").write_text('{"name": "other", "runs": 3}')
    with pytest.raises(
        InputError, match=r"other\.json is not a list of runs .*start the sweep again to repair"
    ):
        remembered(tmp_path)
    assert remembered(tmp_path / "nowhere") == {}


def test_the_time_left_is_shared_by_workers_and_needs_a_pace() -> None:
    states = [State(CONFIG, "done", 12, 6.0), State(CONFIG, "stopped", 6, 3.0), State(CONFIG, "missing")]
    assert time_left(states, workers=1) == 18 * 9 / 18
    assert time_left(states, workers=2) == time_left(states, workers=0) / 2  # type: ignore[operator]
    assert time_left([State(CONFIG, "missing")], workers=1) is None


def test_runs_and_durations_in_words() -> None:
    assert describe(CONFIG) == "digits ERM adam without [5] trial 0 draw 0"
    assert [duration(x) for x in (89, 90, 5399, 5400)] == ["89 seconds", "2 minutes", "90 minutes", "1.5 hours"]
