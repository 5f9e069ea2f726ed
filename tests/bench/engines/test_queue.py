"""The queue of jobs: what is done already, retries, runs that another launcher holds or has finished."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from genie_dg.bench.engines.queue import Event, Queue

from genie_dg.bench.engines import queue as module
from genie_dg.bench.options import Job, RunOptions
from genie_dg.bench.train import NotFinite
from genie_dg.runs.config import RunConfig

CONFIG = RunConfig("digits", (0,), steps=7)


def jobs_in(out: Path, count: int = 2) -> list[Job]:
    return [
        Job(replace(CONFIG, trial_seed=k), "digits", RunOptions(out=str(out / "runs"))) for k in range(count)
    ]


def finish(job: Job) -> None:
    job.folder.mkdir(parents=True, exist_ok=True)
    (job.folder / "done").touch()


def test_what_is_done_is_not_given_out_and_not_announced(tmp_path: Path) -> None:
    first, second = jobs_in(tmp_path)
    finish(first)
    events: list[Event] = []
    queue = Queue([first, second], 1, events.append)
    assert (len(queue), queue.first) == (1, second)
    assert queue.next() == second
    assert queue.next() is None
    assert queue.outcome.done == [first.config.run_id]
    assert events == []


def test_a_job_that_another_launcher_finishes_meanwhile_is_done(tmp_path: Path) -> None:
    first, second = jobs_in(tmp_path)
    events: list[Event] = []
    queue = Queue([first, second], 1, events.append)
    finish(first)
    assert queue.next() == second
    assert queue.outcome.done == [first.config.run_id]
    assert events == [Event("done", first.config.run_id, 7)]


def test_a_job_that_fails_is_tried_again_and_each_reason_is_noted(tmp_path: Path) -> None:
    (job,) = jobs_in(tmp_path, 1)
    run, events = job.config.run_id, list[Event]()
    queue = Queue([job], 1, events.append)
    for reason in ("first", "second"):
        assert queue.next() == job
        queue.fail(job, reason)
    assert len(queue) == 0
    assert queue.outcome.failed == {run: "second"}
    assert events == [Event("retry", run, reason="first"), Event("failed", run, reason="second")]
    lines = (job.folder / "failures.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"attempt": 1, "reason": "first"},
        {"attempt": 2, "reason": "second"},
    ]


def test_a_run_that_diverged_is_not_tried_again(tmp_path: Path) -> None:
    (job,) = jobs_in(tmp_path, 1)
    events: list[Event] = []
    queue = Queue([job], 5, events.append)
    reason = f"{NotFinite.__name__}: The loss of step 3 is nan."
    queue.fail(queue.next() or job, reason)
    assert len(queue) == 0
    assert events == [Event("failed", job.config.run_id, reason=reason)]


def test_a_run_that_is_held_is_looked_at_again_later_and_the_others_go_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    first, second = jobs_in(tmp_path)
    events: list[Event] = []
    queue = Queue([first, second], 0, events.append)
    assert queue.next() == first
    queue.busy(first)
    assert queue.next() == second
    assert queue.next() is None
    assert len(queue) == 1
    clock[0] += module.WAIT
    assert queue.next() == first
    assert events == [Event("busy", first.config.run_id)]
    assert queue.outcome.failed == {}
