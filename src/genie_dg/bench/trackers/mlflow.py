"""MLflow: the server that ``MLFLOW_TRACKING_URI`` names holds the curves.

The experiment is that of ``MLFLOW_EXPERIMENT_NAME``, else the name of the sweep, else ``genie-dg``. A run there
carries the id of ours as its name and as a tag, by which it is found again. The server is asked for the last
step that it holds, so no point is there twice.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping

from genie_dg.runs.outcome import Ending

from .tracker import TrackedRun, Tracker

_RUN, _SWEEP = "genie_dg.run", "genie_dg.sweep"
_STATUS = {Ending.finished: "FINISHED", Ending.stopped: "KILLED"}
"""For the server, which calls all others FAILED."""
_ENVIRONMENT = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
"""A run does not wait minutes for a server that is away, as MLflow does by itself."""
_ENVIRONMENT |= {"MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true", "MLFLOW_DISABLE_TELEMETRY": "true"}


def problem() -> str:
    """Why MLflow cannot be used: nobody said where its server is."""
    there = os.environ.get("MLFLOW_TRACKING_URI", "").strip()
    return "" if there else "--track mlflow needs the address of a server; set MLFLOW_TRACKING_URI to it."


class MlflowTracker(Tracker):
    """A run of an MLflow experiment."""

    def __init__(self, run: TrackedRun) -> None:
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        import mlflow
        from mlflow.entities import Param

        self._client = mlflow.MlflowClient()
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or run.group or "genie-dg"
        experiment = mlflow.set_experiment(name).experiment_id  # two processes may make it at once
        known = self._client.search_runs([experiment], f"tags.`{_RUN}` = '{run.name}'", max_results=1)
        if known:
            self._id = known[0].info.run_id
            self._client.update_run(self._id, status="RUNNING")
        else:
            tags = {_RUN: run.name, _SWEEP: run.group}
            self._id = self._client.create_run(experiment, tags=tags, run_name=run.name).info.run_id
            # 500 characters, which every version of the server takes
            params = [Param(allowed(key), str(value)[:500]) for key, value in run.parameters.items()]
            self._client.log_batch(self._id, params=params)
        history = self._client.get_metric_history(self._id, "validation_loss")  # of every record
        self._last = max((point.step for point in history), default=-1)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        if step <= self._last:
            return
        now = int(time.time() * 1000)
        points = [Metric(allowed(name), value, now, step) for name, value in values.items()]
        self._client.log_batch(self._id, metrics=points)

    def end(self, ending: Ending) -> None:
        self._client.set_terminated(self._id, _STATUS.get(ending, "FAILED"))


def allowed(name: str) -> str:
    """A name with the characters that MLflow takes; the others, and colons, as their numbers.

    >>> allowed("unseen/75 degrees/out"), allowed("seen/a+b/out")
    ('unseen/75 degrees/out', 'seen/a:2b:b/out')
    """
    return re.sub(r"[^/\w.\- ]", lambda match: f":{ord(match[0]):x}:", name)
