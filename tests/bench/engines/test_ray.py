"""Sweeps on Ray: the same runs as here to the bit, through killed workers, failing jobs, locks and Ctrl-C."""

from __future__ import annotations

import json
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from genie_dg.bench.engines import _ray_cluster, _ray_task
from genie_dg.bench.engines._ray_task import (
    TO_RESUME,
    FileRelay,
    UnexpectedFile,
    run_files,
    train_on_node,
    write_run_files,
)
from genie_dg.bench.engines.engine import ClusterError, EngineOptions, Tell, Update
from genie_dg.bench.engines.launch import LaunchResult, launch
from genie_dg.bench.engines.ray import RayEngine
from genie_dg.bench.jobs import OpenSets, run_job
from genie_dg.bench.options import Job, RunOptions
from genie_dg.bench.status import RunState
from genie_dg.files import Busy, write_whole
from genie_dg.runs.config import RunConfig
from genie_dg.runs.folder import TIMINGS, alone, is_sealed
from genie_dg.runs.outcome import OUTCOMES, Ending, read_outcomes
from genie_dg.runs.tensors import load_tensors
from genie_dg.runtime import cores

BASE = RunConfig(
    "digits", (5,), backbone="mlp", optimizer_settings={"lr": 1e-2}, batch_size=8, steps=60, checkpoint_every=10
)
EVALUATED = [0, 10, 20, 30, 40, 50, 59]

DRIVER = """
import pickle, sys
from genie_dg.bench.engines.engine import EngineOptions
from genie_dg.bench.engines.launch import launch
from genie_dg.bench.engines.ray import RayEngine

def report(update):
    print(update.state.value, update.steps, flush=True)

engine = RayEngine(EngineOptions(flags={"address": sys.argv[2]}))
launch([pickle.loads(bytes.fromhex(sys.argv[1]))], engine, report=report)
"""

PLUGIN = """
import os, signal
from pathlib import Path
from genie_dg.bench import train

log, target, real = Path({log!r}), {run!r}, train.make_record

def watched(parts, step, losses):
    run = parts.config.run_id
    first = run == target and step == 30 and f"{{run}} 30 " not in log.read_text()
    with log.open("a") as file:
        file.write(f"{{run}} {{step}} {{os.getpid()}}\\n")
    if first:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(parts, step, losses)

train.make_record = watched
"""
"""Writes down each evaluation, and in one run kills its own process at step 30, the first time."""


def launch_ray(jobs: list[Job], report: Tell | None = None, device: str = "", **flags: Any) -> LaunchResult:
    return launch(jobs, RayEngine(EngineOptions(device=device, flags=flags)), report=report)


def jobs_in(out: Path) -> list[Job]:
    """Four runs: one is watched, one keeps the weights of every record, one those of the last."""
    more: list[dict[str, str]] = [{"watch": "updates,osgr", "keep": "all"}, {}, {"keep": "last"}, {}]
    configs = [replace(BASE, test_domains=(k,), optimizer=name) for k in (0, 5) for name in ("adam", "genie")]
    return [
        Job(config, "digits", RunOptions(out=str(out), **options))
        for config, options in zip(configs, more, strict=True)
    ]


Print = dict[str, bytes]


def print_of(folder: Path) -> Print:
    """The files of a complete run that are the same every time, by name."""
    names = [path.name for path in folder.iterdir() if is_sealed(path.name) and path.name != TIMINGS]
    return {name: (folder / name).read_bytes() for name in sorted(names)}


def assert_same(folder: Path, expected: Print) -> None:
    assert print_of(folder) == expected
    assert (folder / "done").exists()
    assert not (folder / "checkpoint.pt").exists()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Print]:
    opened, prints = OpenSets(), {}
    for job in jobs_in(tmp_path_factory.mktemp("here")):
        run_job(job.changed(device="cpu"), opened)
        prints[job.config.run_id] = print_of(job.folder)
    return prints


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A cluster on this machine, started and stopped as a launch without an address does."""
    with _ray_cluster.connection("") as ray:
        yield ray
    assert not ray.is_initialized()


def test_a_sweep_is_the_same_as_here(
    cluster: Any, undisturbed: dict[str, Print], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    updates: list[Update] = []
    jobs = jobs_in(Path("runs"))
    outcome = launch_ray(jobs, report=updates.append)
    assert sorted(outcome.done) == sorted(undisturbed)
    assert outcome.failed == {}
    for job in jobs:
        assert_same(job.folder, undisturbed[job.config.run_id])
        timings = (job.folder / "timings.jsonl").read_text().splitlines()
        assert [json.loads(line)["step"] for line in timings] == EVALUATED
        assert [one.ending for one in read_outcomes(job.folder)] == [Ending.finished]
        of_run = [one for one in updates if one.run == job.config.run_id]
        steps = [one.steps for one in of_run]
        assert steps == sorted(steps)
        assert (of_run[0].headline, of_run[-1].headline, steps[-1]) == ("", "done", 60)
    assert sorted(launch_ray(jobs, address="nowhere:1").done) == sorted(undisturbed)  # nothing left to do
    assert cluster.is_initialized(), "it was connected before, and stays so"


def test_a_second_cluster_is_refused(cluster: Any, tmp_path: Path) -> None:
    with pytest.raises(
        ClusterError, match=r"Got address='auto', but this process is connected to a cluster already"
    ):
        launch_ray(jobs_in(tmp_path), address="auto")


def test_more_than_this_machine_has_is_refused(cluster: Any, tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"A run asks for 4096 CPUs and 0 GPUs, and this machine has fewer"):
        launch_ray(jobs_in(tmp_path), cpus=4096)


@dataclass
class Hard:
    """What a sweep with one killed worker, one hopeless job and one folder that was held has left."""

    jobs: list[Job]
    hopeless: Job
    log: Path
    outcome: LaunchResult
    updates: list[Update]


@pytest.fixture(scope="module")
def hard(cluster: Any, tmp_path_factory: pytest.TempPathFactory) -> Hard:
    out = tmp_path_factory.mktemp("hard")
    log, plugin, held, updates = out / "log", out / "plugin.py", ExitStack(), []
    jobs = [job.changed(plugin=(str(plugin),), out=str(out / "runs")) for job in jobs_in(out)]
    log.touch()
    plugin.write_text(PLUGIN.format(log=str(log), run=jobs[0].config.run_id))
    hopeless = replace(
        jobs[1], config=replace(jobs[1].config, optimizer="adam", optimizer_settings={"lr": 1e30})
    )
    held.enter_context(alone(jobs[3].folder))

    def report(update: Update) -> None:
        updates.append(update)
        if update.state is RunState.stopped and not update.reason:  # another process has it
            held.close()

    outcome = launch_ray([*jobs, hopeless], report=report)
    return Hard(jobs, hopeless, log, outcome, updates)


def test_a_run_whose_worker_is_killed_goes_on_from_the_last_files_that_were_sent_back(
    hard: Hard, undisturbed: dict[str, Print]
) -> None:
    killed = hard.jobs[0]
    lines = [line.split() for line in hard.log.read_text().splitlines()]
    steps = [int(step) for run, step, _ in lines if run == killed.config.run_id]
    assert steps == [0, 10, 20, 30, 30, 40, 50, 59]
    assert len({pid for run, _, pid in lines if run == killed.config.run_id}) == 2
    assert_same(killed.folder, undisturbed[killed.config.run_id])
    assert {f"model-{step}.pt" for step in EVALUATED} < undisturbed[killed.config.run_id].keys()
    watched = (killed.folder / "watch.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in watched] == EVALUATED
    lost, finished = read_outcomes(killed.folder)
    assert (lost.ending, lost.attempt, finished.ending) == (Ending.failed, 1, Ending.finished)
    assert lost.reason.startswith("The process that trained it was lost (WorkerCrashedError: ")
    retries = [
        one.reason for one in hard.updates if one.headline == "retry" and one.run == killed.config.run_id
    ]
    assert retries == [lost.reason]


def test_the_others_finish_and_what_diverged_is_reported(hard: Hard, undisturbed: dict[str, Print]) -> None:
    ((run, reason),) = hard.outcome.failed.items()
    (diverged,) = read_outcomes(hard.hopeless.folder)
    assert (run, diverged.ending, str(diverged)) == (hard.hopeless.config.run_id, Ending.diverged, reason)
    assert sorted(hard.outcome.done) == sorted(undisturbed)
    for job in hard.jobs:
        assert_same(job.folder, undisturbed[job.config.run_id])


class SlowRelay:
    """Takes no news before it is told to."""

    def __init__(self) -> None:
        self.waiting, self.open = 0, threading.Event()

    def put(self, ticket: str, done: int, files: dict[str, bytes]) -> None:
        self.waiting += 1
        self.open.wait()

    def count(self) -> int:
        return self.waiting

    def release(self) -> None:
        self.open.set()


def test_a_run_holds_its_cpus_while_it_waits_to_report(cluster: Any, tmp_path: Path) -> None:
    """In ``ray.get`` it would lend them to another run."""
    slow = cluster.remote(num_cpus=0, max_concurrency=cores() + 2)(SlowRelay).remote()
    train = cluster.remote(num_cpus=1, max_retries=0)(train_on_node)
    diverging = replace(BASE, optimizer="sgd", optimizer_settings={"lr": 1e30})
    job = Job(diverging, "digits", RunOptions(out=str(tmp_path)))
    results = [train.remote(job, {}, str(k), slow, {}) for k in range(cores())]
    while cluster.get(slow.count.remote()) < cores():
        time.sleep(0.05)
    for _ in range(20):
        assert cluster.available_resources().get("CPU", 0) == 0
    cluster.get(slow.release.remote())
    for update, files in cluster.get(results):
        assert (update.state, list(files)) == (RunState.failed, [OUTCOMES])
        assert b"lower the learning rate" in files[OUTCOMES]
    cluster.kill(slow)


def test_a_run_that_another_launcher_holds_is_waited_for(hard: Hard) -> None:
    busy = [one.run for one in hard.updates if one.state is RunState.stopped and not one.reason]
    assert set(busy) == {hard.jobs[3].config.run_id}


@pytest.mark.slow  # a cluster of its own; the killed worker above is the quick half of this
def test_an_interrupted_launcher_leaves_a_run_that_goes_on(
    cluster: Any, undisturbed: dict[str, Print], tmp_path: Path
) -> None:
    """Ctrl-C in a process that is connected to a running cluster, which it leaves running."""
    job = jobs_in(tmp_path)[0]
    long = replace(job, config=replace(job.config, steps=100_000))
    address = cluster.get_runtime_context().gcs_address
    command = [sys.executable, "-c", DRIVER, pickle.dumps(long).hex(), address]
    away = Path(tempfile.gettempdir())
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            kind, done = line.split()
            if kind == "running" and int(done) > 21:
                break
        with pytest.raises(Busy), alone(long.folder):
            pass
        assert len(list(away.glob(f"genie-dg-*/{long.config.run_id}"))) == 1
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode != 0
    assert list(away.glob(f"genie-dg-*/{long.config.run_id}")) == []
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert [one.ending for one in read_outcomes(long.folder)] == [Ending.stopped]
    state = load_tensors(long.folder / "checkpoint.pt")
    assert state["step"] > 20
    with alone(long.folder):
        records = (long.folder / "records.jsonl").read_bytes().splitlines()
    assert len(records) == state["records"]
    assert records[:3] == undisturbed[job.config.run_id]["records.jsonl"].splitlines()[:3]
    watched = [json.loads(line)["step"] for line in (long.folder / "watch.jsonl").read_text().splitlines()]
    assert watched == [json.loads(line)["step"] for line in records]


def test_a_cluster_that_is_not_there_is_refused_quickly(tmp_path: Path) -> None:
    begin = time.monotonic()
    with pytest.raises(ClusterError, match=r"No cluster answers at '127.0.0.1:1' .*ray start --head"):
        launch_ray(jobs_in(tmp_path), address="127.0.0.1:1")
    with pytest.raises(ClusterError, match=r"'localhost' is not the address of a cluster; write HOST:PORT"):
        launch_ray(jobs_in(tmp_path), address="localhost")
    with pytest.raises(ClusterError, match=r"'h:port' is not the address of a cluster"):
        launch_ray(jobs_in(tmp_path), address="h:port")
    assert time.monotonic() - begin < 10
    assert list(tmp_path.iterdir()) == []


def test_without_ray_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_ray_cluster.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ClusterError, match=r'run pip install "genie-dg\[ray\]" and try again\.'):
        launch_ray(jobs_in(tmp_path))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"cpus": 1.5}, "got cpus=1.5; expected a fraction from 0 to 1"),
        ({"gpus": -1}, "got gpus=-1; expected"),
        ({"cpus": 0}, "got cpus=0 and gpus=0"),
        ({"device": "cuda"}, "got device='cuda' with gpus=0"),
    ],
)
def test_impossible_wishes_are_refused(asked: dict[str, float], message: str, tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=message):
        launch_ray(jobs_in(tmp_path), **asked)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("flag", "options"),
    [
        ("--track tensorboard", {"track": "tensorboard"}),
        ("--track wandb", {"track": "wandb"}),
    ],
)
def test_what_is_not_sent_back_is_refused(
    flag: str, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.delenv("WANDB_DIR", raising=False)
    with pytest.raises(ClusterError, match=f"The files of {flag} are not sent back from a cluster"):
        launch_ray([jobs_in(tmp_path)[0].changed(**options)])


@pytest.mark.parametrize("name", ["../config.json", "/etc/passwd", "lock", "model*.pt", "x/done", "", 3])
def test_file_names_outside_the_list_are_refused(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    with pytest.raises(UnexpectedFile, match="which is not a file of a run; install"):
        write_run_files(folder, {"records.jsonl": b"{}\n", name: b"x", "done": b""})
    assert [path.name for path in tmp_path.rglob("*")] == ["run"]


def test_files_are_written_in_an_order_from_which_a_run_can_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    real = _ray_task.write_whole

    def noted(path: Path, data: bytes, before: Path | None = None) -> None:
        order.append(path.name)
        real(path, data, before)

    monkeypatch.setattr(_ray_task, "write_whole", noted)
    everything = ("done", "model.pt", "checkpoint.pt", "watch.jsonl", "records.jsonl", "config.json")
    write_run_files(tmp_path, dict.fromkeys(everything[2:], b"1"))
    assert order == ["config.json", "records.jsonl", "watch.jsonl", "checkpoint.pt"]
    (tmp_path / "model-3.pt").write_bytes(b"of a try that kept all")
    write_run_files(tmp_path, dict.fromkeys(everything, b"2"))
    assert order[4:] == ["records.jsonl", "watch.jsonl", "model.pt", "checkpoint.pt", "done"]
    assert (tmp_path / "config.json").read_bytes() == b"1"
    assert not (tmp_path / "checkpoint.pt").exists()
    assert not (tmp_path / "model-3.pt").exists()


def test_the_mailbox_keeps_the_newest_files_until_they_are_taken() -> None:
    mailbox = FileRelay()
    mailbox.put("a", 1, {"records.jsonl": b"1"})
    mailbox.put("a", 4, {"model.pt": b"best"})
    mailbox.put("a", 5, {"records.jsonl": b"2"})
    mailbox.put("a", 7, {})
    mailbox.put("b", 2, {})
    assert mailbox.take() == {"a": (7, {"records.jsonl": b"2", "model.pt": b"best"}), "b": (2, {})}
    assert mailbox.take() == {}


def test_only_files_that_changed_are_sent(tmp_path: Path) -> None:
    known: dict[str, tuple[int, ...]] = {}
    for name in ("config.json", "model-0.pt", "notes.txt", "checkpoint.pt"):
        (tmp_path / name).write_bytes(b"1")
    names = ["config.json", "model-0.pt", "checkpoint.pt"]
    assert list(run_files(tmp_path, TO_RESUME, known)) == names
    write_whole(tmp_path / "checkpoint.pt", b"2")
    assert run_files(tmp_path, TO_RESUME, known) == {"checkpoint.pt": b"2"}
    assert list(run_files(tmp_path)) == names
