"""The loop above the engines, with an engine that does what a test says: retries, outcomes, busy runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from genie_dg.bench.engines import launch as module
from genie_dg.bench.engines.engine import Engine, EngineOptions, Tell, Update, with_whole_paths
from genie_dg.bench.engines.launch import LaunchResult, launch
from genie_dg.bench.options import Job, RunOptions
from genie_dg.bench.status import RunState
from genie_dg.runs.config import RunConfig
from genie_dg.runs.outcome import Ending, Outcome, note_outcome, read_outcomes, recorded

CONFIG = RunConfig("digits", (0,), steps=7)
DISK = Outcome(Ending.failed, "the disk is full", "FileError")


def jobs_in(out: Path, count: int = 1) -> list[Job]:
    return [
        Job(replace(CONFIG, trial_seed=k), "digits", RunOptions(out=str(out / "runs"))) for k in range(count)
    ]


def finish(job: Job) -> None:
    job.folder.mkdir(parents=True, exist_ok=True)
    (job.folder / "done").touch()


Act = Callable[[Job], Update]


def well(job: Job) -> Update:
    finish(job)
    return Update(job.config.run_id, RunState.done, 7)


def ends(state: RunState, outcome: Outcome | None = None, note: bool = False) -> Act:
    def act(job: Job) -> Update:
        if note and outcome is not None:
            note_outcome(job.folder, outcome)
        return Update(job.config.run_id, state, outcome=outcome)

    return act


class ScriptedEngine(Engine):
    """Does with each job what the next act says, and well when there is none."""

    def __init__(self, *acts: Act, room: int = 9) -> None:
        super().__init__(EngineOptions())
        self.acts, self.most, self.jobs, self.events = list(acts), room, list[Job](), list[str]()

    def start(self, jobs: Sequence[Job]) -> None:
        self.events.append(f"start {len(jobs)}")

    @property
    def room(self) -> int:
        return self.most - len(self.jobs)

    def submit(self, jobs: Sequence[Job]) -> Sequence[Job]:
        self.events.append(f"submit {len(jobs)}")
        self.jobs += jobs
        return ()

    def poll(self, tell: Tell) -> None:
        jobs, self.jobs = self.jobs, []
        for job in jobs:
            tell(Update(job.config.run_id, RunState.running, 3))
            tell((self.acts.pop(0) if self.acts else well)(job))

    def cancel(self) -> None:
        self.events.append("cancel")


def launched(jobs: Sequence[Job], engine: Engine, retries: int = 1) -> tuple[LaunchResult, list[Update]]:
    updates: list[Update] = []
    return launch(jobs, engine, retries=retries, report=updates.append), updates


def test_what_is_done_is_not_submitted_and_an_engine_takes_no_more_than_it_has_room_for(tmp_path: Path) -> None:
    jobs = jobs_in(tmp_path, 4)
    finish(jobs[0])
    engine = ScriptedEngine(room=2)
    result, updates = launched(jobs, engine)
    assert result == LaunchResult([job.config.run_id for job in jobs])
    assert engine.events == ["start 3", "submit 2", "submit 1", "cancel"]
    assert [update.headline for update in updates] == ["", "done", "", "done", "", "done"]
    assert launched(jobs, engine)[1] == []
    assert engine.events[4:] == ["cancel"]


@pytest.mark.parametrize("noted", [True, False])
def test_a_job_that_fails_is_tried_again_and_each_attempt_is_noted_once(noted: bool, tmp_path: Path) -> None:
    """By the process that trained it or, where that could not, by the loop."""
    (job,) = jobs_in(tmp_path)
    fails = ends(RunState.failed, DISK, note=noted)
    result, updates = launched([job], ScriptedEngine(fails, fails, fails), retries=1)
    assert result.failed == {job.config.run_id: "FileError: the disk is full"}
    assert [one.headline for one in updates if one.headline] == ["retry", "failed"]
    assert {one.reason for one in updates if one.headline} == {"FileError: the disk is full"}
    assert read_outcomes(job.folder) == [replace_attempt(DISK, k) for k in (1, 2)]
    result, _ = launched([job], ScriptedEngine(ends(RunState.failed)), retries=0)
    assert "ended without a reason" in result.failed[job.config.run_id]
    assert [one.attempt for one in read_outcomes(job.folder)] == [1, 2, 3]


def replace_attempt(outcome: Outcome, attempt: int) -> Outcome:
    return Outcome(outcome.ending, outcome.reason, outcome.error, attempt)


@pytest.mark.parametrize("ending", [Ending.diverged, Ending.stopped])
def test_a_run_that_diverged_or_was_cancelled_is_not_tried_again(ending: Ending, tmp_path: Path) -> None:
    (job,) = jobs_in(tmp_path)
    result, updates = launched([job], ScriptedEngine(ends(RunState.failed, Outcome(ending, "why"))), retries=5)
    assert result.failed == {job.config.run_id: "why"}
    assert [one.headline for one in updates] == ["", "failed"]


def test_an_attempt_that_was_interrupted_costs_no_retry(tmp_path: Path) -> None:
    (job,) = jobs_in(tmp_path)
    preempted = ends(RunState.stopped, Outcome(Ending.stopped, "preempted"))
    result, updates = launched([job], ScriptedEngine(preempted, preempted, preempted), retries=0)
    assert result == LaunchResult([job.config.run_id])
    assert [one.headline for one in updates if one.headline] == ["retry"] * 3 + ["done"]


def test_a_run_that_another_launcher_has_is_offered_again_and_is_done_when_that_finishes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AGAIN", 0.0)
    first, second = jobs_in(tmp_path, 2)

    def busy_and_finished_elsewhere(job: Job) -> Update:
        finish(job)
        (job.folder / "done").rename(job.folder / "soon")
        return Update(job.config.run_id, RunState.stopped)

    engine = ScriptedEngine(busy_and_finished_elsewhere)
    updates: list[Update] = []

    def report(update: Update) -> None:
        updates.append(update)
        if update.state is RunState.stopped:
            (first.folder / "soon").rename(first.folder / "done")

    result = launch([first, second], engine, report=report)
    assert sorted(result.done) == sorted(job.config.run_id for job in (first, second))
    assert engine.events == ["start 2", "submit 2", "cancel"]
    assert read_outcomes(first.folder) == [], "the other launcher notes it"


def test_the_engine_is_told_when_the_launch_ends_in_whatever_way(tmp_path: Path) -> None:
    def interrupt(job: Job) -> Update:
        raise KeyboardInterrupt

    engine = ScriptedEngine(interrupt)
    with pytest.raises(KeyboardInterrupt):
        launched(jobs_in(tmp_path), engine)
    assert engine.events[-1] == "cancel"


def test_how_an_attempt_ends_is_recorded(tmp_path: Path) -> None:
    class Diverged(RuntimeError):
        ending = Ending.diverged

    for error in (Diverged("nan"), OSError("full"), KeyboardInterrupt(), SystemExit(3)):
        with pytest.raises(type(error)), recorded(tmp_path, "12_3"):
            raise error
    with recorded(tmp_path):
        pass
    (tmp_path / "done").touch()
    with recorded(tmp_path):  # nothing to do, so no attempt
        pass
    assert [(one.ending.value, one.error, one.attempt, one.job) for one in read_outcomes(tmp_path)] == [
        ("diverged", "Diverged", 1, "12_3"),
        ("failed", "OSError", 2, "12_3"),
        ("stopped", "KeyboardInterrupt", 3, "12_3"),
        ("finished", "", 4, ""),
    ]


def test_paths_are_whole_for_nodes_and_names_of_sets_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("mine", "digits"):
        (tmp_path / name).mkdir()
    job = Job(CONFIG, "mine", RunOptions(root="data", weights="w.pth", plugin=("p.py",)))
    whole = with_whole_paths(job)
    assert whole.data == str(tmp_path / "mine")
    paths = {name: str(tmp_path / name) for name in ("runs", "data", "w.pth", "p.py")}
    assert whole.options == RunOptions(
        out=paths["runs"], root=paths["data"], weights=paths["w.pth"], plugin=(paths["p.py"],)
    )
    assert with_whole_paths(replace(job, data="digits")).data == "digits"
    assert with_whole_paths(replace(job, data="/on/the/nodes")).data == "/on/the/nodes"
