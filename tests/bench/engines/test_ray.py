"""Sweeps on Ray: the same runs as here to the bit, through killed workers, failing jobs, locks and Ctrl-C."""

from __future__ import annotations

import json
import shutil
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
from genie_dg.bench.engines._ray_copies import copy_of, job_here, with_paths_of_launcher
from genie_dg.bench.engines._ray_files import Progress, UnexpectedFile, train_remotely, write_files
from genie_dg.bench.engines.queue import ClusterError, Event, Outcome

from genie_dg.bench.engines import _ray_cluster, _ray_files
from genie_dg.bench.engines.ray import launch_ray
from genie_dg.bench.jobs import OpenSets, run_job
from genie_dg.bench.options import Job, RunOptions
from genie_dg.files import Busy
from genie_dg.runs.config import RunConfig
from genie_dg.runs.folder import TIMINGS, alone, is_sealed
from genie_dg.runs.tensors import load_tensors
from genie_dg.runtime import cores

BASE = RunConfig(
    "digits", (5,), backbone="mlp", optimizer_settings={"lr": 1e-2}, batch_size=8, steps=60, checkpoint_every=10
)
EVALUATED = [0, 10, 20, 30, 40, 50, 59]

DRIVER = """
import sys
from genie_dg.bench.options import job_from
from genie_dg.bench.engines.ray import launch_ray

def report(event):
    print(event.kind, event.done, flush=True)

launch_ray([job_from(sys.argv[1])], address=sys.argv[2], report=report)
"""

PLUGIN = """
import os, signal
from pathlib import Path
from genie_dg.bench import train

log, target, real = Path({log!r}), {run!r}, train.evaluate

def watched(parts, step, losses):
    run = parts.config.run_id
    first = run == target and step == 30 and f"{{run}} 30 " not in log.read_text()
    with log.open("a") as file:
        file.write(f"{{run}} {{step}} {{os.getpid()}}\\n")
    if first:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(parts, step, losses)

train.evaluate = watched
"""
"""Writes down each evaluation, and in one run kills its own process at step 30, the first time."""


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


@pytest.fixture
def stays_connected(cluster: Any) -> Iterator[None]:
    """Nothing to prepare; afterwards the cluster must be connected still."""
    yield
    assert cluster.is_initialized()


@pytest.mark.usefixtures("stays_connected")
def test_a_sweep_is_the_same_as_here(
    undisturbed: dict[str, Print], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    events: list[Event] = []
    jobs = jobs_in(Path("runs"))
    outcome = launch_ray(jobs, report=events.append)
    assert sorted(outcome.done) == sorted(undisturbed)
    assert outcome.failed == {}
    for job in jobs:
        assert_same(job.folder, undisturbed[job.config.run_id])
        timings = (job.folder / "timings.jsonl").read_text().splitlines()
        assert [json.loads(line)["step"] for line in timings] == EVALUATED
        of_run = [event for event in events if event.run == job.config.run_id]
        assert [of_run[0].kind, of_run[-1].kind] == ["started", "done"]
        steps = [event.done for event in of_run if event.kind == "progress"]
        assert steps == sorted(steps)
        assert steps[-1] == of_run[-1].done == 60
    assert sorted(launch_ray(jobs, address="nowhere:1").done) == sorted(
        undisturbed
    )  # nothing left to connect for


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
    outcome: Outcome
    events: list[Event]


@pytest.fixture(scope="module")
def hard(cluster: Any, tmp_path_factory: pytest.TempPathFactory) -> Hard:
    out = tmp_path_factory.mktemp("hard")
    log, plugin, held, events = out / "log", out / "plugin.py", ExitStack(), []
    jobs = [job.changed(plugin=(str(plugin),), out=str(out / "runs")) for job in jobs_in(out)]
    log.touch()
    plugin.write_text(PLUGIN.format(log=str(log), run=jobs[0].config.run_id))
    hopeless = replace(
        jobs[1], config=replace(jobs[1].config, optimizer="adam", optimizer_settings={"lr": 1e30})
    )
    held.enter_context(alone(jobs[3].folder))

    def report(event: Event) -> None:
        events.append(event)
        if event.kind == "busy":
            held.close()

    outcome = launch_ray([*jobs, hopeless], report=report)
    return Hard(jobs, hopeless, log, outcome, events)


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
    failures = [json.loads(line) for line in (killed.folder / "failures.jsonl").read_text().splitlines()]
    assert [failure["attempt"] for failure in failures] == [1]
    assert failures[0]["reason"].startswith("The process that trained it was lost (WorkerCrashedError: ")
    retries = [
        event.reason for event in hard.events if event.kind == "retry" and event.run == killed.config.run_id
    ]
    assert retries == [failures[0]["reason"]]


def test_a_hopeless_job_is_reported_and_the_others_finish(hard: Hard, undisturbed: dict[str, Print]) -> None:
    run = hard.hopeless.config.run_id
    assert list(hard.outcome.failed) == [run]
    reason = hard.outcome.failed[run]
    assert reason.startswith("NotFinite: The loss of step ")
    lines = (hard.hopeless.folder / "failures.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [{"attempt": 1, "reason": reason}]
    assert [event.kind for event in hard.events if event.run == run and event.reason] == ["failed"]
    assert not (hard.hopeless.folder / "done").exists()
    assert sorted(hard.outcome.done) == sorted(undisturbed)
    for job in hard.jobs:
        assert_same(job.folder, undisturbed[job.config.run_id])


def test_the_temporary_folder_of_a_killed_worker_is_removed(hard: Hard) -> None:
    left = [path.parent for path in Path(tempfile.gettempdir()).glob("genie-dg-*/lock.holder")]
    assert [place for place in left if (place / hard.jobs[0].config.run_id).exists()] == []


def test_what_a_node_lacks_is_unpacked_once_in_each_process(cluster: Any, tmp_path: Path) -> None:
    plugin, data = tmp_path / "rows.py", tmp_path / "pictures"
    plugin.write_text("here = True")
    (data / "photo").mkdir(parents=True)
    (data / "photo" / "a.png").write_bytes(b"a")
    copies = {str(path): copy_of(cluster, str(path)) for path in (plugin, data)}
    job = replace(jobs_in(tmp_path)[0].changed(plugin=(str(plugin),)), data=str(data))
    assert job_here(job, copies) == job
    shutil.rmtree(data)
    plugin.write_text("here = 'changed'")
    there = job_here(job, copies)
    assert Path(there.options.plugin[0]).read_text() == "here = True"
    assert (Path(there.data).name, (Path(there.data) / "photo" / "a.png").read_bytes()) == ("pictures", b"a")
    assert job_here(job, copies) == there
    assert with_paths_of_launcher(f"{there.data}/photo is empty.", copies) == f"{data}/photo is empty."


class SlowProgress:
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
    slow = cluster.remote(num_cpus=0, max_concurrency=cores() + 2)(SlowProgress).remote()
    train = cluster.remote(num_cpus=1, max_retries=0)(train_remotely)
    job = replace(jobs_in(tmp_path)[0], data="nowhere")
    results = [train.remote(job.to_json(), {}, str(k), slow) for k in range(cores())]
    while cluster.get(slow.count.remote()) < cores():
        time.sleep(0.05)
    time.sleep(1)
    assert cluster.available_resources().get("CPU", 0) == 0
    cluster.get(slow.release.remote())
    for reason, files in cluster.get(results):
        assert reason.startswith("DataError: Got 'nowhere'; expected a folder")
        assert files == {}
    cluster.kill(slow)


def test_a_run_that_another_launcher_holds_is_waited_for(hard: Hard) -> None:
    busy = [event.run for event in hard.events if event.kind == "busy"]
    assert busy == [hard.jobs[3].config.run_id]


@pytest.mark.slow  # a cluster of its own; the killed worker above is the quick half of this
@pytest.mark.usefixtures("stays_connected")
def test_an_interrupted_launcher_leaves_a_run_that_goes_on(
    cluster: Any, undisturbed: dict[str, Print], tmp_path: Path
) -> None:
    """Ctrl-C in a process that is connected to a running cluster, which it leaves running."""
    job = jobs_in(tmp_path)[0]
    long = replace(job, config=replace(job.config, steps=100_000))
    address = cluster.get_runtime_context().gcs_address
    command = [sys.executable, "-c", DRIVER, long.to_json(), address]
    away = Path(tempfile.gettempdir())
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            kind, done = line.split()
            if kind == "progress" and int(done) > 21:
                break
        with pytest.raises(Busy), alone(long.folder):
            pass
        assert len(list(away.glob(f"genie-dg-*/{long.config.run_id}"))) == 1
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode != 0
    assert list(away.glob(f"genie-dg-*/{long.config.run_id}")) == []
    assert errors.rstrip().endswith("KeyboardInterrupt")
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
        ({"retries": -1}, "got retries=-1; expected a whole number of at least 0"),
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


@pytest.mark.parametrize("name", ["../config.json", "/etc/passwd", "lock", "failures.jsonl", "x/done", "", 3])
def test_file_names_outside_the_list_are_refused(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    with pytest.raises(UnexpectedFile, match="which is not a file of a run; only config"):
        write_files(folder, {"records.jsonl": b"{}\n", name: b"x", "done": b""})
    assert [path.name for path in tmp_path.rglob("*")] == ["run"]


def test_files_are_written_in_an_order_from_which_a_run_can_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    real = _ray_files.write_whole

    def noted(path: Path, data: bytes, before: Path | None = None) -> None:
        order.append(path.name)
        real(path, data, before)

    monkeypatch.setattr(_ray_files, "write_whole", noted)
    everything = ("done", "model.pt", "checkpoint.pt", "watch.jsonl", "records.jsonl", "config.json")
    write_files(tmp_path, dict.fromkeys(everything[2:], b"1"))
    assert order == ["config.json", "records.jsonl", "watch.jsonl", "checkpoint.pt"]
    (tmp_path / "model-3.pt").write_bytes(b"of a try that kept all")
    write_files(tmp_path, dict.fromkeys(everything, b"2"))
    assert order[4:] == ["records.jsonl", "watch.jsonl", "model.pt", "checkpoint.pt", "done"]
    assert (tmp_path / "config.json").read_bytes() == b"1"
    assert not (tmp_path / "checkpoint.pt").exists()
    assert not (tmp_path / "model-3.pt").exists()


def test_progress_keeps_the_newest_files_until_they_are_taken() -> None:
    progress = Progress()
    progress.put("a", 1, {"records.jsonl": b"1"})
    progress.put("a", 4, {"model.pt": b"best"})
    progress.put("a", 5, {"records.jsonl": b"2"})
    progress.put("a", 7, {})
    progress.put("b", 2, {})
    assert progress.take() == {"a": (7, {"records.jsonl": b"2", "model.pt": b"best"}), "b": (2, {})}
    assert progress.take() == {}
