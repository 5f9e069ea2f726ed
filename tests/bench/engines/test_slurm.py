"""Sweeps on a real Slurm: the same runs as here to the bit, through kills, time limits, requeues and Ctrl-C."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from genie_dg.bench.engines import slurm as engine
from genie_dg.bench.engines._slurm_task import checkpoint_stamp
from genie_dg.bench.engines.engine import ClusterError, EngineOptions, Tell, Update
from genie_dg.bench.engines.launch import LaunchResult, launch
from genie_dg.bench.engines.slurm import SlurmEngine
from genie_dg.bench.options import Job, RunOptions
from genie_dg.bench.status import RunState, status_of
from genie_dg.files import held_by
from genie_dg.runs.config import RunConfig
from genie_dg.runs.outcome import Ending, read_outcomes
from genie_dg.runs.submissions import Submission, last_jobs, place_of, read_submissions
from tests.slurm import Slurm, bytes_of, until_warned, wait_for

BASE = RunConfig(
    "digits", (5,), backbone="mlp", optimizer_settings={"lr": 1e-2}, batch_size=8, steps=24, checkpoint_every=6
)


def job_in(out: Path, optimizer: str = "adam", **more: object) -> Job:
    config = replace(BASE, optimizer=optimizer, **more)  # type: ignore[arg-type]
    return Job(config, "digits", RunOptions(out=str(out)))


def launch_slurm(
    jobs: Sequence[Job],
    name: str,
    say: Callable[[str], None] = print,
    report: Tell | None = None,
    device: str = "",
    **flags: object,
) -> LaunchResult:
    options = EngineOptions(device=device, say=say, flags=flags)
    return launch([job.changed(group=name) for job in jobs], SlurmEngine(options), report=report)


def process_of(job: Job) -> int:
    """The process that trains a run, once it has a checkpoint."""
    wait_for(lambda: (job.folder / "checkpoint.pt").exists() and held_by(job.folder / "lock"))
    holder = held_by(job.folder / "lock")
    assert holder is not None
    return holder.pid


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "SETTLE", 1.0)
    monkeypatch.setattr(engine, "LOOK", 0.2)


@pytest.mark.usefixtures("cluster", "quick")
def test_an_array_of_two_runs_gives_the_bytes_of_this_process(tmp_path: Path) -> None:
    """From the submission to logs in the folders of the runs; nothing is submitted again afterwards."""
    jobs = [job_in(tmp_path / "slurm", optimizer) for optimizer in ("adam", "genie")]
    said: list[str] = []
    flags = {"partition": "main", "time": "10", "slurm": ["mem=100M"]}
    outcome = launch_slurm(jobs, "two", said.append, **flags)
    runs = [job.config.run_id for job in jobs]
    assert (sorted(outcome.done), outcome.failed) == (sorted(runs), {})
    (made,) = read_submissions(tmp_path / "slurm", "two")
    assert made.runs == tuple(runs)
    hint = f"(see squeue --job {made.job}, cancel by scancel {made.job})"
    assert said == [f"Submitted: 2 runs in Slurm job {made.job} {hint}."]
    for k, job in enumerate(jobs):
        log = job.folder / f"slurm-{made.job}_{k}.log"
        # a run is done when its last record is written, which is before its job has ended
        wait_for(lambda log=log: "Exiting after successful completion" in log.read_text(), 60)  # type: ignore[misc]
    assert [one.job for job in jobs for one in read_outcomes(job.folder)] == [f"{made.job}_0", f"{made.job}_1"]
    assert len(launch([job_in(tmp_path / "here", name) for name in ("adam", "genie")], "here").done) == 2
    assert bytes_of(tmp_path / "slurm") == bytes_of(tmp_path / "here")
    assert launch_slurm(jobs, "two").done == runs
    assert len(read_submissions(tmp_path / "slurm", "two")) == 1


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"cpus": 1.5}, r"got --cpus 1\.5 and --gpus 0; expected whole numbers"),
        ({"device": "cuda"}, r"got device='cuda' with gpus=0; give --gpus 1\."),
        ({"partition": "gpu"}, r"Slurm refused the jobs \(.*invalid partition specified: gpu\); change"),
        (
            {"slurm": ["no-such-option=1"]},
            r"Slurm refused the jobs \(.*unrecognized option '--no-such-option=1'\)",
        ),
    ],
)
def test_what_is_refused_is_one_sentence_and_leaves_no_job(
    flags: dict[str, Any], message: str, cluster: Slurm, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    job = job_in(tmp_path)
    with pytest.raises(ClusterError, match=message):
        launch_slurm([job], "no", **flags)
    assert capfd.readouterr() == ("", "")
    assert "no-" not in cluster.ask("squeue", "--noheader", "--format=%j")
    assert not job.folder.exists()
    assert list(tmp_path.rglob("*.pkl")) == []
    assert last_jobs(read_submissions(tmp_path, "no")) == {}


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    ("state", "further", "expected", "reason"),
    [
        ("PREEMPTED", False, RunState.stopped, "goes on in another."),
        ("TIMEOUT", True, RunState.stopped, "goes on in another."),
        ("TIMEOUT", False, RunState.failed, "reached its time limit without a new checkpoint;"),
        ("NODE_FAIL", True, RunState.failed, "ended as NODE_FAIL; it left no log: "),
        ("", True, RunState.failed, "ended without a trace; it left no log: "),
        ("CANCELLED", True, RunState.failed, "was cancelled; start the same command again"),
    ],
)
def test_how_a_job_ended_says_whether_its_run_is_to_blame(
    state: str, further: bool, expected: RunState, reason: str, tmp_path: Path
) -> None:
    job = job_in(tmp_path)
    watched = SlurmEngine(EngineOptions(flags={"time": "5"}))
    submission = Submission("x-1", (job.config.run_id,), "today", "12")
    job.folder.mkdir()
    one = engine._Submitted(job, submission, tmp_path, checkpoint_stamp(job.folder))
    if further:
        (job.folder / "checkpoint.pt").write_bytes(b"x")
    update = watched._ended(one, state)
    assert (update.state, update.outcome and update.outcome.job) == (expected, "12")
    assert reason in update.reason
    assert update.outcome is not None
    stopped = expected is RunState.stopped or state == "CANCELLED"
    assert update.outcome.ending is (Ending.stopped if stopped else Ending.failed)


@pytest.mark.usefixtures("cluster", "quick")
def test_a_controller_that_does_not_answer_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(names: Sequence[str]) -> None:
        raise ClusterError("squeue failed (no controller); is this a login node of a cluster?")

    said: list[str] = []
    watched = SlurmEngine(EngineOptions(say=said.append))
    monkeypatch.setattr(engine, "queued_jobs", fail)
    for _ in range(3):
        watched._changed = watched._looked  # it looks again at once
        watched.poll(lambda update: None)
    assert said == ["squeue failed (no controller); waiting, and jobs that were submitted go on."]


SLOW_SBATCH = """#!/bin/sh
if grep -q 'array=0-[3-9]' "$1"; then
    echo 'sbatch: error: QOSMaxSubmitJobPerUserLimit' >&2
    exit 1
fi
exec {real} "$@"
"""


def test_arrays_shrink_to_what_a_user_may_submit(
    cluster: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In place of an accounting database a wrapper refuses arrays of more than three, in Slurm's own words."""
    (tmp_path / "bin").mkdir()
    wrapper = tmp_path / "bin" / "sbatch"
    wrapper.write_text(SLOW_SBATCH.format(real=shutil.which("sbatch")))
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
    said: list[str] = []

    def interrupt(text: str) -> None:
        said.append(text)
        if len(said) == 4:
            raise KeyboardInterrupt

    jobs = [job_in(tmp_path / "runs", trial_seed=k) for k in range(8)]
    with pytest.raises(KeyboardInterrupt):
        launch_slurm(jobs, "many", interrupt, slurm=["hold"])
    made = read_submissions(tmp_path / "runs", "many")
    ids = [one.job for one in made if one.job]
    assert [len(one.runs) for one in made] == [8, 4, 2, 2, 2, 2]
    assert said[-1].startswith(f"Still in the queue: 8 runs in Slurm job {' '.join(ids)} (")
    assert said[-1].endswith("; the same command watches them again.")
    cluster.ask("scancel", *ids)


@dataclass
class Trouble:
    """A sweep to which everything happened, and how it ended."""

    jobs: dict[str, Job]
    outcome: LaunchResult

    @property
    def out(self) -> Path:
        return self.jobs["limit"].folder.parent

    def log(self, name: str) -> str:
        """All logs of a run."""
        return "".join(path.read_text() for path in sorted(self.jobs[name].folder.glob("slurm-*.log")))

    def submissions(self, name: str) -> int:
        run = self.jobs[name].config.run_id
        return sum(run in one.runs for one in read_submissions(self.out, "hard"))


def disturbances(cluster: Slurm, jobs: dict[str, Job]) -> list[Callable[[], object]]:
    """Kill a process, requeue a job, cancel another, and hold a process until its time is up."""

    def command(name: str, *words: str) -> str:
        """A command of Slurm on the first job of a run, while that is at work."""
        process_of(jobs[name])
        made = read_submissions(jobs[name].folder.parent, "hard")[0]
        return cluster.ask(*words, made.job_of(jobs[name].config.run_id))

    return [
        lambda: os.kill(process_of(jobs["killed"]), signal.SIGKILL),
        lambda: until_warned(process_of(jobs["limit"])),
        lambda: command("requeued", "scontrol", "requeue"),
        lambda: command("cancelled", "scancel"),
    ]


@pytest.fixture(scope="module")
def trouble(cluster: Slurm, tmp_path_factory: pytest.TempPathFactory) -> Trouble:
    """Six runs: see `disturbances`; one cannot learn, one has no data."""
    out = tmp_path_factory.mktemp("trouble")
    (out / "empty").mkdir()
    long = {"steps": 1000, "checkpoint_every": 50}
    jobs = {
        "limit": job_in(out, "adam", **long),
        "killed": job_in(out, "genie", **long),
        "requeued": job_in(out, "sgd", **long),
        "cancelled": job_in(out, "adam", steps=100_000, checkpoint_every=50),
        "hopeless": job_in(out, "sgd", optimizer_settings={"lr": 1e30}),
        "no data": replace(job_in(out, trial_seed=7), data=str(out / "empty")),
    }
    with ThreadPoolExecutor() as threads, pytest.MonkeyPatch.context() as patch:

        def report(update: Update) -> None:
            for one in disturbed:
                if one.done():
                    one.result()

        patch.setattr(engine, "SETTLE", 1.0)
        patch.setattr(engine, "LOOK", 0.5)
        disturbed = [threads.submit(one) for one in disturbances(cluster, jobs)]
        outcome = launch_slurm(list(jobs.values()), "hard", report=report, time="2")
        for one in disturbed:
            one.result()
    return Trouble(jobs, outcome)


@pytest.mark.slow
def test_runs_that_were_killed_requeued_or_out_of_time_are_those_of_this_process(
    trouble: Trouble, tmp_path: Path
) -> None:
    done = [trouble.jobs[name] for name in ("limit", "killed", "requeued")]
    assert sorted(trouble.outcome.done) == sorted(job.config.run_id for job in done)
    assert len(launch([job.changed(out=str(tmp_path)) for job in done], "here").done) == 3
    found = bytes_of(trouble.out)
    assert {name: found[name] for name in bytes_of(tmp_path)} == bytes_of(tmp_path)


@pytest.mark.slow
def test_a_time_limit_and_a_requeue_stay_in_one_job_and_a_kill_is_a_retry(trouble: Trouble) -> None:
    for name in ("limit", "requeued"):
        assert trouble.submissions(name) == 1
        assert [one.ending for one in read_outcomes(trouble.jobs[name].folder)] == [Ending.finished]
        assert trouble.log(name).count("Starting with JobEnvironment") >= 2
    assert "Caught signal SIGUSR2" in trouble.log("limit")
    assert "Requeued job" in trouble.log("limit")
    assert trouble.submissions("killed") == 2
    failure, finished = read_outcomes(trouble.jobs["killed"].folder)
    assert failure.reason == f"The Slurm job {failure.job} ended as FAILED; its log is {trouble_log(trouble)}."
    assert finished.ending is Ending.finished


def trouble_log(trouble: Trouble) -> Path:
    """Of the first attempt at the run that was killed."""
    first = read_submissions(trouble.out, "hard")[0]
    name = f"{first.job_of(trouble.jobs['killed'].config.run_id)}_0_log.out"
    return place_of(trouble.out, "hard").with_suffix("") / first.name / name


@pytest.mark.slow
def test_what_cannot_be_done_is_reported_with_its_reason(trouble: Trouble) -> None:
    ids = {name: job.config.run_id for name, job in trouble.jobs.items()}
    failed = trouble.outcome.failed
    assert set(failed) == {ids["cancelled"], ids["hopeless"], ids["no data"]}
    assert "was cancelled; start the same command again" in failed[ids["cancelled"]]
    assert trouble.submissions("cancelled") == 1, "who cancels a job does not want it back at once"
    assert "lower the learning rate of sgd" in failed[ids["hopeless"]]
    assert failed[ids["no data"]].startswith("DataError: ")
    for name, attempts in (("hopeless", [1]), ("no data", [1, 2])):  # what diverged would diverge again
        assert trouble.submissions(name) == len(attempts)
        assert [one.attempt for one in read_outcomes(trouble.jobs[name].folder)] == attempts
    jobs = last_jobs(read_submissions(trouble.out, "hard"))
    states = {
        name: status_of(job.config, trouble.out, submitted=jobs.get(ids[name])).state
        for name, job in trouble.jobs.items()
    }
    failed_states = dict.fromkeys(("hopeless", "no data"), RunState.failed)
    assert states == {**dict.fromkeys(ids, RunState.done), **failed_states, "cancelled": RunState.stopped}
