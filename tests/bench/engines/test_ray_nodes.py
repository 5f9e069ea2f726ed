"""Sweeps on a Ray cluster of two nodes on this machine: a node that is lost, data and plugins that it lacks.

A path below ``/proc/self/cwd`` is another folder for each process, so two nodes that were started in two
folders have different files under the same path, as two machines have.
"""

from __future__ import annotations

import csv
import io
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from genie_dg.bench.engines._ray_cluster import stage
from genie_dg.bench.engines._ray_task import paths_read_by
from genie_dg.bench.engines.engine import EngineOptions
from genie_dg.bench.engines.launch import launch
from genie_dg.bench.engines.ray import RayEngine
from genie_dg.bench.options import Job, RunOptions
from genie_dg.cli.main import main
from genie_dg.runs.config import RunConfig
from genie_dg.runs.folder import TIMINGS, is_sealed

HERE = "/proc/self/cwd"

SWEEP = """
name = "nodes"
protocol = "domainbed"
datasets = ["digits"]
algorithms = ["ERM"]
optimizers = ["adam", "genie"]
test_domains = [[0], [5]]
hparams = [0]
trials = 6

[overrides]
steps = 161
checkpoint_every = 20
backbone = "mlp"
batch_size = 16
"""

OF_TABLE = f"""
name = "table"
protocol = "domainbed"
datasets = ["{HERE}/patients.csv"]
algorithms = ["ERM"]
optimizers = ["sam-sgd"]
test_domains = [["b"]]
hparams = [0]
trials = 2

[columns."{HERE}/patients.csv"]
domain = "hospital"
label = "ill"

[overrides]
steps = 21
checkpoint_every = 10
batch_size = 4
"""

ROWS = """
from dataclasses import replace
from genie_dg.plugins import OPTIMIZERS, Setting

sam = OPTIMIZERS["sam"]
OPTIMIZERS.register(replace(sam, name="sam-sgd", space={**sam.space, "base": Setting("sgd")}))
"""

DRIVER = f"""
import sys
from pathlib import Path
from genie_dg.bench.engines.engine import EngineOptions
from genie_dg.bench.engines.launch import launch
from genie_dg.bench.engines.ray import RayEngine
from genie_dg.bench.jobs import OpenSets
from genie_dg.bench.options import RunOptions
from genie_dg.bench.sweep import plan

if __name__ == "__main__":
    out, address = sys.argv[1:]
    options = RunOptions(out=out, plugin=("{HERE}/rows.py",), device="cpu")
    OpenSets().load_plugins(options)
    jobs = plan(Path("sweep.toml"), options).jobs
    flags = dict(address=address, cpus=2)
    outcome = launch(jobs, RayEngine(EngineOptions(flags=flags)) if address else "local")
    print(len(outcome.done), outcome.failed)
"""


def bytes_of(out: Path) -> dict[str, bytes]:
    """The files of all runs that are the same every time."""
    paths = [path for path in out.glob("*/*") if is_sealed(path.name) and path.name != TIMINGS]
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(paths)}


def a_table(folder: Path) -> Path:
    """Twenty patients of each of three hospitals."""
    rows = [f"{name},{k % 2},{k * 0.1 + k % 2:.1f},{k % 5}" for name in "abc" for k in range(20)]
    (folder / "patients.csv").write_text("\n".join(["hospital,ill,age,dose", *rows]) + "\n")
    return folder / "patients.csv"


def job_of(data: Path | str, digest: str = "", **options: Any) -> Job:
    return Job(RunConfig("patients", (0,), data_digest=digest), str(data), RunOptions(**options))


COLUMNS = {"domain_column": "hospital", "label_column": "ill"}


def test_what_a_run_reads_besides_embedded_sets(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    assert paths_read_by(job_of(table, **COLUMNS, weights="/w.pt")) == [str(table), "/w.pt"]
    assert paths_read_by(job_of("digits", root="/data", plugin=("/p.py",))) == ["/p.py"]
    assert paths_read_by(job_of("PACS", root="/data")) == ["/data"]


def test_small_files_and_folders_are_staged_under_their_names_and_links_are_followed(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    pictures, place = tmp_path / "pictures", tmp_path / "place"
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.png").write_bytes(b"a")
    pictures.mkdir()
    (pictures / "photo").symlink_to(tmp_path / "elsewhere")
    listed, large = tmp_path / "list.csv", tmp_path / "large"
    listed.write_text("path,domain,label\na.png,photo,dog\n")
    large.mkdir()
    with (large / "big").open("wb") as file:
        file.truncate(101 * 10**6)  # takes no room
    place.mkdir()
    jobs = [job_of(table, **COLUMNS), job_of(table, **COLUMNS), *map(job_of, (pictures, listed, large, "/no"))]
    names = stage(jobs, place)
    assert names == {str(table): "0/patients.csv", str(pictures): "1/pictures"}
    assert (place / "0" / "patients.csv").read_bytes() == table.read_bytes()
    assert (place / "1" / "pictures" / "photo" / "a.png").read_bytes() == b"a"
    assert not (place / "1" / "pictures" / "photo").is_symlink()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """The head of a cluster on this machine, with room for one run; tests add a second node and lose it."""
    pytest.importorskip("ray", reason='ray is missing: pip install "genie-dg[ray]"')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 1, "include_dashboard": False}
        nodes = Cluster(initialize_head=True, head_node_args=head)
        try:
            yield nodes
        finally:
            nodes.shutdown()


def records_at_home(out: Path) -> list[int]:
    """How many records each run has by now that is under way."""
    begun = [path for path in out.glob("*/records.jsonl") if not (path.parent / "done").exists()]
    return [len(path.read_bytes().splitlines()) for path in begun]


def table_of(out: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, str]]:
    """The rows of the table, without the column that is never the same twice."""
    capsys.readouterr()
    assert main(["table", str(out), "--format", "csv"]) == 0
    rows = csv.DictReader(io.StringIO(capsys.readouterr().out))
    return [{key: value for key, value in row.items() if key != "seconds_per_step"} for row in rows]


@pytest.mark.slow
def test_a_sweep_whose_node_is_lost_ends_as_the_local_one(
    cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sweep.toml").write_text(SWEEP)
    away = cluster.add_node(num_cpus=1, node_name="away")
    words = ["sweep", str(tmp_path / "sweep.toml"), "--device", "cpu", "--watch", "updates,osgr"]
    words += ["--keep", "all", "--out"]
    on_ray = [*words, str(tmp_path / "ray"), "--engine", "ray", "--address", cluster.address, "--retries", "0"]
    command = [sys.executable, "-m", "genie_dg", *on_ray]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as launcher:
        while sum(count > 1 for count in records_at_home(tmp_path / "ray")) < 2:
            assert launcher.poll() is None, launcher.communicate()
            time.sleep(0.02)
        cluster.remove_node(away, allow_graceful=False)
        assert main(["status", str(tmp_path / "ray")]) == 0  # what is at home is seen at once
        assert " running" in capsys.readouterr().out
        said, errors = launcher.communicate()
    assert launcher.returncode == 0, said + errors
    assert "24 of 24 runs are done, 0 failed." in said
    assert said.count("retry ") == 1
    assert "NodeDiedError" in said
    assert main([*words, str(tmp_path / "local"), "--workers", "2"]) == 0
    tables = table_of(tmp_path / "ray", capsys), table_of(tmp_path / "local", capsys)
    assert tables[0] == tables[1]
    assert len(tables[0]) >= 4
    assert bytes_of(tmp_path / "ray") == bytes_of(tmp_path / "local")
    names = [path.name for path in (tmp_path / "ray").glob("*/*")]
    assert names.count("watch.jsonl") == names.count("done") == 24
    assert names.count("model-160.pt") == 24


@pytest.fixture
def away(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the launcher, which is not that of the second node, which has room for two."""
    for name in ("home", "away"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "away")
    node = cluster.add_node(num_cpus=2, node_name="away")
    monkeypatch.chdir(tmp_path / "home")
    yield tmp_path / "home"
    cluster.remove_node(node, allow_graceful=False)


@pytest.mark.slow
def test_small_data_and_plugins_are_sent_to_a_node_that_lacks_them(cluster: Any, away: Path) -> None:
    a_table(away)
    for name, text in (("rows.py", ROWS), ("sweep.toml", OF_TABLE), ("driver.py", DRIVER)):
        (away / name).write_text(text)
    for out, address in (("ray", cluster.address), ("local", "")):
        command = [sys.executable, "driver.py", out, address]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.stdout.splitlines()[-1:] == ["2 {}"], done.stderr
    assert len(bytes_of(away / "ray")) == 2 * 4
    assert bytes_of(away / "ray") == bytes_of(away / "local")


@pytest.mark.slow
def test_large_data_that_a_node_lacks_is_one_sentence(cluster: Any, away: Path) -> None:
    (away / "pictures" / "photo" / "dog").mkdir(parents=True)
    with (away / "pictures" / "photo" / "dog" / "a.png").open("wb") as file:
        file.truncate(101 * 10**6)  # takes no room
    engine = RayEngine(EngineOptions(flags={"address": cluster.address, "cpus": 2}))
    (reason,) = launch([job_of(f"{HERE}/pictures", out="runs")], engine).failed.values()
    assert f"{HERE}/pictures is missing on node " in reason
    assert "mount it there under the same path" in reason
