"""Weights & Biases: a run of the project ``WANDB_PROJECT``, else ``genie-dg``, with the id of ours.

Online a run that goes on is resumed there, and its server drops what it has already: steps only ever grow.
Offline (``WANDB_MODE=offline``) every process begins a folder of its own, which ``wandb sync --append`` joins.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from genie_dg.runs.outcome import Ending

from .tracker import TrackedRun, Tracker

_SETTINGS: dict[str, Any] = {"silent": True, "console": "off", "disable_git": True, "disable_code": True}
_SETTINGS |= {"login_timeout": 60, "x_disable_stats": True, "x_disable_machine_info": True}


def is_offline() -> bool:
    """Whether W&B was told to write files and to send nothing."""
    return os.environ.get("WANDB_MODE", "") in ("offline", "dryrun")


def keeps_files() -> bool:
    """Whether runs are found nowhere but in files in the folders of the runs."""
    return is_offline() and not os.environ.get("WANDB_DIR")


class WandbTracker(Tracker):
    """A run of a W&B project; output, code and measures of the machine are not sent."""

    def __init__(self, run: TrackedRun) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # W&B would report its own errors to its makers
        import wandb

        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or "genie-dg",
            id=run.name,
            name=run.name,
            group=run.group or None,
            config=dict(run.parameters),
            dir=os.environ.get("WANDB_DIR") or run.folder,
            resume=None if is_offline() else "allow",
            reinit="create_new",
            settings=wandb.Settings(**_SETTINGS),
        )

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step, commit=True)

    def end(self, ending: Ending) -> None:
        """Also ends W&B's process: it writes the last points after it has said that a run is finished."""
        import wandb

        self._run.summary["state"] = ending.value
        self._run.finish(exit_code=0 if ending is Ending.finished else 1)
        wandb.teardown()
