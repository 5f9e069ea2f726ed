"""Tracking: every point once, through failures of the tracker and of the run, and the run is as without it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import torch

from genie_dg.bench import tracking
from genie_dg.bench.jobs import run_job
from genie_dg.bench.trackers.tracker import TRACKERS, TrackedRun, Tracker, TrackerRow
from genie_dg.check import InputError
from genie_dg.files import Busy, FileWarning
from genie_dg.runs.folder import alone
from genie_dg.runs.outcome import Ending

from .trackers.runs import CONFIG, OPENED, STEPS, Point, expected, job_in, train_in_two_attempts


@dataclass
class Memory:
    """What a tracker's server would hold; ``away`` is when it fails."""

    points: list[Point] = field(default_factory=list)
    states: list[str] = field(default_factory=list)
    opened: list[TrackedRun] = field(default_factory=list)
    away: set[str] = field(default_factory=set)


class MemoryTracker(Tracker):
    def __init__(self, memory: Memory, run: TrackedRun) -> None:
        self.memory = memory
        self._check("open")
        torch.rand(1)  # a tracker may draw what it likes
        memory.opened.append(run)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        first, *others = values.items()
        self.memory.points.append((first[0], step, first[1]))
        self._check("log")  # half of a record has arrived
        self.memory.points += [(name, step, value) for name, value in others]

    def end(self, ending: Ending) -> None:
        self._check("end")
        self.memory.states.append(ending)

    def _check(self, what: str) -> None:
        if what in self.memory.away:
            raise ConnectionError("the server is away.\nCall its owner.")


@pytest.fixture
def memory() -> Iterator[Memory]:
    before, made = dict(TRACKERS._rows), Memory()
    TRACKERS.register(TrackerRow("memory", lambda run: MemoryTracker(made, run), "keeps what it is told"))
    yield made
    TRACKERS._rows = before


def test_a_run_in_two_attempts_has_every_point_once(memory: Memory, tmp_path: Path) -> None:
    job = job_in(tmp_path, "memory")
    train_in_two_attempts(job)
    assert sorted(memory.points) == expected(job.folder)
    assert {step for _, step, _ in memory.points} == set(STEPS)
    assert memory.states == ["failed", "finished"]
    assert {(run.name, run.group) for run in memory.opened} == {(CONFIG.run_id, "some-sweep")}
    told = memory.opened[0].parameters
    assert told["optimizer_settings.lr"] == 0.3
    assert told["test_domains"] == "75 degrees"
    assert told["version.torch"] == torch.__version__
    assert all(isinstance(value, str | int | float) for value in told.values())


def test_a_finished_run_is_not_sent(memory: Memory, tmp_path: Path) -> None:
    run_job(job_in(tmp_path, ""), OPENED)
    run_job(job_in(tmp_path, "memory"), OPENED)
    assert memory == Memory()


@pytest.mark.parametrize("away", ["open", "log", "end"])
def test_a_tracker_that_fails_changes_nothing_and_is_told_once(
    away: str, memory: Memory, tmp_path: Path
) -> None:
    plain, tracked = job_in(tmp_path / "plain", ""), job_in(tmp_path / "tracked", "memory")
    run_job(plain, OPENED)
    memory.away = {away}
    with pytest.warns(FileWarning) as caught:
        run_job(tracked, OPENED)
    (warning,) = caught
    assert str(warning.message) == (
        f"memory does not track {CONFIG.run_id} (ConnectionError: the server is away); the run goes on without "
        "it, and it is tried again a minute later."
    )
    for name in ("config.json", "records.jsonl", "model.pt"):
        assert (tracked.folder / name).read_bytes() == (plain.folder / name).read_bytes()
    assert memory.states == ([Ending.finished] if away == "log" else [])


def test_a_tracker_that_is_back_gets_what_is_made_from_then_on(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "PAUSE", 0.0)
    job, memory.away = job_in(tmp_path, "memory"), {"open"}

    def repair(done: int, record: object) -> None:
        if done > 4:
            memory.away = set()

    with pytest.warns(FileWarning, match="the server is away"):
        run_job(job, OPENED, repair)
    assert sorted(memory.points) == [point for point in expected(job.folder) if point[1] > 4]
    assert memory.states == ["finished"]


def test_a_run_that_another_process_trains_is_not_touched(memory: Memory, tmp_path: Path) -> None:
    job = job_in(tmp_path, "memory")
    with alone(job.folder), pytest.raises(Busy):
        run_job(job, OPENED)
    assert memory == Memory()


def test_a_run_that_is_stopped_says_so(memory: Memory, tmp_path: Path) -> None:
    def stop(done: int, record: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_job(job_in(tmp_path, "memory"), OPENED, stop)
    assert memory.states == ["stopped"]


def test_a_model_of_all_domains_is_tracked(memory: Memory, tmp_path: Path) -> None:
    job = job_in(tmp_path, "memory")
    run_job(replace(job, config=replace(CONFIG, test_domains=(), steps=1)), OPENED)
    assert {name.split("/")[0] for name, _, _ in memory.points} == {
        "loss",
        "validation",
        "validation_loss",
        "seen",
    }


def test_an_unknown_tracker_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"There is no tracker 'wandbb'; the choice is .*did you mean 'wandb'"):
        run_job(job_in(tmp_path, "wandbb"), OPENED)
    assert not (tmp_path / CONFIG.run_id).exists()
