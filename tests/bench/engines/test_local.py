"""Sweeps survive: killed runs, killed launchers, failing jobs, two launchers at once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from genie_dg.bench.engines import local
from genie_dg.bench.engines.local import cores, launch, launch_here
from genie_dg.bench.engines.queue import Event, Queue
from genie_dg.bench.jobs import OpenSets, run_job
from genie_dg.bench.options import Job, RunOptions
from genie_dg.bench.status import counts, state_of
from genie_dg.check import InputError
from genie_dg.data.registry import open_data
from genie_dg.runs.record import RunConfig

BASE = RunConfig(
    "digits", (5,), backbone="mlp", optimizer_settings={"lr": 1e-3}, batch_size=8, steps=60, checkpoint_every=6
)


def jobs_in(out: Path, steps: int = 60) -> list[Job]:
    options = RunOptions(out=str(out), threads=1)
    return [
        Job(replace(BASE, steps=steps, test_domains=(t,), optimizer=optimizer), "digits", options)
        for t in (0, 5)
        for optimizer in ("adam", "genie")
    ]


def fingerprint(out: Path) -> dict[str, object]:
    """Records as bytes and final weights as numbers, of every run."""
    found: dict[str, object] = {}
    for folder in sorted(out.iterdir()):
        if folder.name != "sweeps":
            weights = torch.load(folder / "model.pt", weights_only=True)["algorithm"]
            found[folder.name] = (folder / "records.jsonl").read_bytes()
            found[f"{folder.name}/weights"] = {name: value.tolist() for name, value in weights.items()}
    return found


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    out = tmp_path_factory.mktemp("undisturbed")
    opened = OpenSets()
    for job in jobs_in(out):
        run_job(job, opened)
    return fingerprint(out)


def test_a_sweep_killed_at_twenty_random_moments_ends_as_if_nothing_had_happened(
    undisturbed: dict[str, object], tmp_path: Path
) -> None:
    """SIGKILL, wherever it strikes: in a step, an evaluation, a write, a rename, between two runs.

    The sweep runs in a forked child, so that a restart costs no imports and twenty fit into a test.
    """
    moments, killed = random.Random(0), 0
    began = time.monotonic()
    open_data("digits")  # the children find scikit-learn imported
    whole = None
    while killed < 20:
        child = os.fork()
        if child == 0:
            launch_here(jobs_in(tmp_path))
            os._exit(0)
        if whole is None:
            whole = 0.9
        time.sleep(moments.uniform(0.02, whole))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            killed += 1
        else:  # it had ended before the signal came: begin a new sweep with shorter lives
            whole /= 2
            for folder in tmp_path.iterdir():
                for file in folder.iterdir():
                    file.unlink()
                folder.rmdir()
        assert time.monotonic() - began < 240
    outcome = launch_here(jobs_in(tmp_path))
    assert len(outcome.done) == 4
    assert fingerprint(tmp_path) == undisturbed


def test_the_pool_survives_killed_workers_and_a_killed_launcher(
    undisturbed: dict[str, object], tmp_path: Path
) -> None:
    """Real worker processes: one is killed in the middle of a run, then the launcher, and all with it."""
    script = tmp_path / "sweep.py"
    script.write_text(
        "import sys; from pathlib import Path; from tests.bench.engines.test_local import jobs_in\n"
        "from genie_dg.bench.engines.local import launch\n"
        "def tell(event): print(event.kind, event.done, event.reason, flush=True)\n"
        "outcome = launch(jobs_in(Path(sys.argv[1])), 2, retries=1, device='cpu', report=tell)\n"
        "print('end', len(outcome.done), len(outcome.failed), flush=True)\n"
    )
    out = tmp_path / "runs"

    def start() -> subprocess.Popen[str]:
        command = [sys.executable, str(script), str(out)]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)

    first = start()
    assert first.stdout is not None
    lines = iter(first.stdout.readline, "")
    for line in lines:
        if line.startswith("progress") and int(line.split()[1]) > 20:
            break
    workers = children_of(first.pid)
    assert len(workers) == 2
    os.kill(workers[0], signal.SIGKILL)
    seen = ""
    for line in lines:
        seen += line
        if "signal 9" in seen and line.startswith("progress"):
            break
    assert "retry 0 The process that trained it ended with signal 9." in seen
    workers = children_of(first.pid)
    first.kill()
    first.wait()
    first.stdout.close()
    deadline = time.monotonic() + 30
    while any(alive(pid) for pid in workers):
        assert time.monotonic() < deadline, "workers outlived their launcher"
        time.sleep(0.05)
    second = start()
    assert second.stdout is not None
    text = second.stdout.read()
    second.stdout.close()
    assert second.wait() == 0
    assert "end 4 0" in text
    assert fingerprint(out) == undisturbed


def children_of(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("workers", [0, -1])
def test_no_worker_is_refused_in_a_sentence(workers: int) -> None:
    with pytest.raises(ValueError, match=f"got workers={workers}; expected a whole number of at least 1"):
        launch([], workers)


def test_a_failing_job_is_tried_again_then_reported_and_the_others_finish(tmp_path: Path) -> None:
    good = jobs_in(tmp_path, steps=3)[:1]
    bad = Job(
        replace(BASE, steps=30, optimizer="sgd", optimizer_settings={"lr": 1e30}),
        "digits",
        RunOptions(out=str(tmp_path), threads=1),
    )
    events: list[Event] = []
    outcome = launch_here([bad, *good], retries=2, report=events.append)
    assert outcome.done == [good[0].config.run_id]
    assert "lower the learning rate of sgd" in outcome.failed[bad.config.run_id]
    kinds = [event.kind for event in events if event.run == bad.config.run_id and event.kind != "progress"]
    assert kinds == ["started", "retry", "started", "retry", "started", "failed"]
    lines = (bad.folder / "failures.jsonl").read_text().splitlines()
    assert [json.loads(line)["attempt"] for line in lines] == [1, 2, 3]
    states = [state_of(job.config, tmp_path) for job in (bad, *good)]
    assert counts(states) == {"done": 1, "running": 0, "failed": 1, "stopped": 0, "missing": 0}
    assert "lower the learning rate" in states[0].reason
    again = launch([bad, *good], 1, retries=0, device="cpu")
    assert list(again.failed) == [bad.config.run_id]


def test_two_launchers_share_a_sweep_and_train_no_run_twice(
    undisturbed: dict[str, object], tmp_path: Path
) -> None:
    children = []
    for _ in range(2):
        child = os.fork()
        if child == 0:
            outcome = launch_here(jobs_in(tmp_path))
            os._exit(0 if len(outcome.done) == 4 else 1)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert codes == [0, 0]
    assert fingerprint(tmp_path) == undisturbed
    for folder in tmp_path.iterdir():
        steps = [json.loads(line)["step"] for line in (folder / "timings.jsonl").read_text().splitlines()]
        assert steps == sorted(set(steps)), "a step was trained twice"


def test_a_full_disk_is_one_sentence_and_loses_nothing(undisturbed: dict[str, object], tmp_path: Path) -> None:
    """A real limit on the size of files stands for a full disk; lifted, the sweep goes on."""
    code = (
        "import resource, signal, sys; from pathlib import Path\n"
        "from genie_dg.bench.engines.local import launch_here\n"
        "from tests.bench.engines.test_local import jobs_in\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))\n"
        "outcome = launch_here(jobs_in(Path(sys.argv[1])), retries=0)\n"
        "print(sorted(set(outcome.failed.values())))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert "cannot be written" in done.stdout, done.stderr
    assert "nothing that was saved is lost" in done.stdout
    outcome = launch_here(jobs_in(tmp_path))
    assert len(outcome.done) == 4
    assert fingerprint(tmp_path) == undisturbed


@pytest.mark.parametrize(
    ("asked", "user", "threads"), [(3, "2", 3), (0, "2", 2), (0, "", max(1, cores() // 2)), (0, "2,1", 2)]
)
def test_threads_are_those_asked_for_or_the_users_or_a_share_of_the_cores(
    asked: int, user: str, threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", user)
    job = Job(BASE, "digits", RunOptions(out=str(tmp_path), threads=asked))
    launched = local._Launch(Queue([job], 0, None), 2, "cpu")
    launched._stop()
    assert launched.threads == threads


def test_a_negative_number_of_threads_is_refused() -> None:
    with pytest.raises(InputError, match=r"got threads=-1; expected a whole number of at least 0\."):
        RunOptions(threads=-1)
