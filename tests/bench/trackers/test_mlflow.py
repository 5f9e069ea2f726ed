"""MLflow against a real server on this machine: what it holds after runs that were interrupted and killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .runs import Point, expected, job_in, train_in_two_attempts

for module in ("mlflow", "flask", "flask_cors", "sqlalchemy", "alembic", "gunicorn"):
    pytest.importorskip(module, reason=f"{module} is not installed: the server of MLflow needs it")

START = 240
"""Seconds that the server has to start on a busy machine."""


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with a database of its own."""
    place = tmp_path_factory.mktemp("mlflow")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    words = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)]
    words += ["--workers", "1"]
    words += ["--backend-store-uri", f"sqlite:///{place / 'mlflow.db'}", "--gunicorn-opts", "--threads 4"]
    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    environment = {**os.environ, **quiet, "HOME": str(place)}
    with (place / "log").open("wb") as log:
        process = subprocess.Popen(
            words, cwd=place, env=environment, stdout=log, stderr=log, start_new_session=True
        )
    try:
        until = time.monotonic() + START
        while not answers(address):
            assert process.poll() is None, (place / "log").read_text()
            assert time.monotonic() < until, (place / "log").read_text()
            time.sleep(0.2)
        yield address
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)


@pytest.fixture
def client(server: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    from mlflow.tracking import MlflowClient

    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    return MlflowClient(server)


def runs_of(client: Any, experiment: str) -> dict[str, Any]:
    found = client.get_experiment_by_name(experiment)
    runs = client.search_runs([found.experiment_id])
    assert len({run.info.run_name for run in runs}) == len(runs), "one run there for each of ours"
    return {run.info.run_name: run for run in runs}


def points_of(client: Any, run: Any) -> list[Point]:
    return sorted(
        (name, point.step, point.value)
        for name in run.data.metrics
        for point in client.get_metric_history(run.info.run_id, name)
    )


def test_the_server_has_every_point_of_a_run_in_two_attempts_once(
    client: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    job = job_in(tmp_path, "mlflow")
    train_in_two_attempts(job)
    (run,) = runs_of(client, "some-sweep").values()
    assert run.info.run_name == job.config.run_id
    assert run.info.status == "FINISHED"
    assert points_of(client, run) == expected(job.folder)
    assert run.data.params["optimizer_settings.lr"] == "0.3"
    assert run.data.params["test_domains"] == "75 degrees"
    assert {"version.genie_dg", "version.torch"} <= set(run.data.params)
    assert run.data.tags["genie_dg.sweep"] == "some-sweep"
    assert capfd.readouterr().out == ""
