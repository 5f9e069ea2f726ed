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

from genie_dg.bench.engines.launch import launch
from genie_dg.bench.jobs import OpenSets, run_job
from genie_dg.bench.options import Job, RunOptions
from genie_dg.bench.status import RunState, status_of
from genie_dg.data.registry import open_data
from genie_dg.runs.config import RunConfig
from genie_dg.runs.outcome import Ending, read_outcomes

BASE = RunConfig(
    "digits", (5,), backbone="mlp", optimizer_settings={"lr": 1e-2}, batch_size=8, steps=60, checkpoint_every=6
)


def jobs_in(out: Path, steps: int = 60) -> list[Job]:
    options = RunOptions(out=str(out))
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
            launch(jobs_in(tmp_path), "here")
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
    outcome = launch(jobs_in(tmp_path), "here")
    assert len(outcome.done) == 4
    assert fingerprint(tmp_path) == undisturbed


SCRIPT = (
    "import sys; from pathlib import Path; from tests.bench.engines.test_local import jobs_in\n"
    "from genie_dg.bench.engines.launch import launch\n"
    "def tell(one): print(one.headline or one.state.value, one.steps, one.reason, flush=True)\n"
    "jobs = jobs_in(Path(sys.argv[1]), int(sys.argv[2]))\n"
    "outcome = launch(jobs, workers=2, device='cpu', report=tell)\n"
    "print('end', len(outcome.done), len(outcome.failed), flush=True)\n"
)
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[3]), *sys.path])}


def start(out: Path, steps: int = 60) -> subprocess.Popen[str]:
    """A launcher with two workers, in a process (and a group of processes) of its own."""
    command = [sys.executable, "-c", SCRIPT, str(out), str(steps)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, **pipes, text=True, env=ENVIRONMENT, start_new_session=True)  # type: ignore[call-overload]


def wait_for(process: subprocess.Popen[str], word: str, at_least: int = 0) -> str:
    """Read events up to one that begins with a word and counts so many steps; returns all that was read."""
    assert process.stdout is not None
    seen = ""
    for line in iter(process.stdout.readline, ""):
        seen += line
        if line.startswith(word) and int(line.split()[1]) >= at_least:
            return seen
    raise AssertionError(f"{word} never came: {seen}")


def workers_of(launcher: int) -> tuple[int, list[int]]:
    """The fork server of a launcher, which is its child that has children, and these: the workers."""
    by_server = {child: children_of(child) for child in children_of(launcher)}
    ((server, workers),) = [(server, workers) for server, workers in by_server.items() if workers]
    return server, workers


def wait_until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 30
    while any(alive(pid) for pid in pids):
        assert time.monotonic() < deadline, "workers outlived their launcher"
        time.sleep(0.02)


def test_the_pool_survives_a_killed_worker_a_killed_server_and_a_killed_launcher(
    undisturbed: dict[str, object], tmp_path: Path
) -> None:
    """Real processes: a worker is killed in a run, then what all are forked from, then the launcher."""
    with start(tmp_path) as first:
        wait_for(first, "running", 10)
        server, workers = workers_of(first.pid)
        assert len(workers) == 2
        assert len(os.listdir(f"/proc/{server}/task")) == 1, (
            "a fork would lose another thread and keep its locks"
        )
        os.kill(workers[0], signal.SIGKILL)
        assert "The process that trained it ended with signal 9." in wait_for(first, "retry")
        wait_for(first, "running", 20)
        os.kill(server, signal.SIGKILL)
        wait_for(first, "done")  # its workers go on
        descendants = [pid for child in children_of(first.pid) for pid in (child, *children_of(child))]
        first.kill()
        wait_until_gone([*workers, *descendants])
    assert len(launch(jobs_in(tmp_path), "here").done) == 4
    assert fingerprint(tmp_path) == undisturbed


def test_a_launcher_that_is_stopped_ends_its_workers_which_note_it(tmp_path: Path) -> None:
    with start(tmp_path, 100_000) as launcher:
        wait_for(launcher, "running", 10)
        _, workers = workers_of(launcher.pid)
        launcher.send_signal(signal.SIGINT)
        _, errors = launcher.communicate(timeout=60)
        wait_until_gone(workers)
    assert errors.rstrip().endswith("KeyboardInterrupt")
    endings = [one.ending for job in jobs_in(tmp_path, 100_000) for one in read_outcomes(job.folder)]
    assert endings == [Ending.stopped] * 2


SCRIPT_WITHOUT_GUARD = """
import sys
from pathlib import Path
with open(sys.argv[1] + "/log", "a") as file:
    file.write("x")
from genie_dg.bench.engines import local
from genie_dg.bench.engines.launch import launch
from tests.bench.engines.test_local import jobs_in
local.multiprocessing.get_all_start_methods = lambda: sys.argv[2:]
print("printed here")
print(len(launch(jobs_in(Path(sys.argv[1], "runs"), steps=2), workers=2, device="cpu").done))
"""


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_a_script_without_a_guard_is_run_once_also_where_there_is_no_fork(method: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT_WITHOUT_GUARD)
    command = [sys.executable, str(tmp_path / "script.py"), str(tmp_path), method]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=300)
    assert done.stdout == "printed here\n4\n", done.stderr
    assert (tmp_path / "log").read_text() == "x"


def children_of(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


def test_a_job_that_diverges_is_reported_at_once_and_the_others_finish(tmp_path: Path) -> None:
    good = jobs_in(tmp_path, steps=3)[:1]
    bad = Job(
        replace(BASE, steps=30, optimizer="sgd", optimizer_settings={"lr": 1e30}),
        "digits",
        RunOptions(out=str(tmp_path)),
    )
    outcome = launch([bad, *good], "here", retries=2)
    assert outcome.done == [good[0].config.run_id]
    assert "lower the learning rate of sgd" in outcome.failed[bad.config.run_id]
    assert [one.ending for one in read_outcomes(bad.folder)] == [Ending.diverged]
    assert [one.ending for one in read_outcomes(good[0].folder)] == [Ending.finished]
    states = [status_of(job.config, tmp_path).state for job in (bad, *good)]
    assert states == [RunState.failed, RunState.done]


def test_two_launchers_share_a_sweep_and_train_no_run_twice(
    undisturbed: dict[str, object], tmp_path: Path
) -> None:
    children = []
    for _ in range(2):
        child = os.fork()
        if child == 0:
            outcome = launch(jobs_in(tmp_path), "here")
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
        "from genie_dg.bench.engines.launch import launch\n"
        "from tests.bench.engines.test_local import jobs_in\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))\n"
        "outcome = launch(jobs_in(Path(sys.argv[1])), 'here', retries=0)\n"
        "print(sorted(set(outcome.failed.values())))\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=120)
    assert "cannot be written" in done.stdout, done.stderr
    assert "nothing that was saved is lost" in done.stdout
    outcome = launch(jobs_in(tmp_path), "here")
    assert len(outcome.done) == 4
    assert fingerprint(tmp_path) == undisturbed
