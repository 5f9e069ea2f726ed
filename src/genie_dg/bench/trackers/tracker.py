"""What a tracker is, and the registry of trackers.

A tracker holds one run of its own for each run here. It is opened while the run trains, also when the run goes
on after it was stopped; `genie_dg.bench.tracking` sends it the points of every record. It may fail at any
moment: the user is warned once, and training goes on.
"""

from __future__ import annotations

import importlib.util
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from genie_dg.check import InputError, MissingPackage
from genie_dg.registry import Registry
from genie_dg.runs.outcome import Ending


@dataclass(frozen=True)
class TrackedRun:
    """What a tracker gets to know of a run when it is opened.

    Args:
        name: the run's id, which is the same whenever and wherever the run goes on.
        group: the name of the sweep; empty for a run of ``genie-dg train``.
        folder: of the run; a tracker that writes files writes them into a folder of its own there.
        parameters: the configuration and the versions, as plain values by name.
    """

    name: str
    group: str
    folder: Path
    parameters: Mapping[str, str | int | float | bool]


class Tracker(ABC):
    """One run in a tracker, opened to be written to."""

    @abstractmethod
    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Add points to curves, all of one step.

        A run that goes on from the checkpoint before a damaged one makes a record again: a step that was sent
        before then comes once more, with the same values.
        """

    @abstractmethod
    def end(self, ending: Ending) -> None:
        """Mark the run as ended, and let go of everything; a run that is opened again is not ended any more."""


@dataclass(frozen=True)
class TrackerRow:
    """One tracker.

    Args:
        name: what it is asked for by.
        open: begins a run in the tracker, or opens the one that this run has there.
        summary: one line for listings.
        module: what must be importable; empty for nothing.
        problem: says in a sentence why the tracker cannot be used as it is set up; empty when it can.
        keeps_files: whether it leaves files in the run's folder, which are not sent back from a cluster.
    """

    name: str
    open: Callable[[TrackedRun], Tracker]
    summary: str
    module: str = ""
    problem: Callable[[], str] = lambda: ""
    keeps_files: Callable[[], bool] = lambda: False


def _of(name: str) -> Callable[..., Any]:
    """A function ``module:name`` of this package, imported when it is called."""

    def call(*arguments: Any) -> Any:
        return pkgutil.resolve_name(f"{__package__}.{name}")(*arguments)

    return call


_MLFLOW = "the MLflow server that MLFLOW_TRACKING_URI names"
_WANDB = "Weights & Biases, or its files with WANDB_MODE=offline"
_BOARD_TRACKER = _of("tensorboard:TensorBoardTracker")
_BOARD = "TensorBoard's files, in the folder tensorboard of each run"

TRACKERS: Registry[TrackerRow] = Registry(
    "tracker",
    [
        TrackerRow("mlflow", _of("mlflow:MlflowTracker"), _MLFLOW, "mlflow", problem=_of("mlflow:problem")),
        TrackerRow("wandb", _of("wandb:WandbTracker"), _WANDB, "wandb", keeps_files=_of("wandb:keeps_files")),
        TrackerRow("tensorboard", _BOARD_TRACKER, _BOARD, "tensorboard", keeps_files=lambda: True),
    ],
    TrackerRow,
    "genie_dg.trackers",
)


def check_trackers(names: Iterable[str]) -> list[TrackerRow]:
    """The rows of some trackers; one that is not known, not installed or not set up is refused."""
    rows = [TRACKERS[name] for name in dict.fromkeys(names)]
    for row in rows:
        if row.module and importlib.util.find_spec(row.module) is None:
            raise MissingPackage(f"--track {row.name} needs {row.module}; run pip install {row.module}.")
        if problem := row.problem():
            raise InputError(problem)
    return rows
