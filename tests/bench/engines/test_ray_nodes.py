"""A sweep on a Ray cluster of two nodes on this machine, of which one is lost."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from genie_dg.cli.main import main
from genie_dg.runs.folder import TIMINGS, is_sealed

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


def bytes_of(out: Path) -> dict[str, bytes]:
    """The files of all runs that are the same every time."""
    paths = [path for path in out.glob("*/*") if is_sealed(path.name) and path.name != TIMINGS]
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(paths)}


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
    assert bytes_of(tmp_path / "ray") == bytes_of(tmp_path / "local")
    assert len(list((tmp_path / "ray").glob("*/model-160.pt"))) == 24
