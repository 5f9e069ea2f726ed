"""Weights & Biases: a run of the project ``WANDB_PROJECT``, else ``genie-dg``, with the id of ours.

Online a run that goes on is resumed there, and its server drops what it has already: steps only ever grow.
Offline (``WANDB_MODE=offline``) every process begins a folder of its own, which ``wandb sync --append`` joins;
what the earlier ones hold is read back, since a process that was killed loses what W&B had not written yet.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .tracker import State, TrackedRun, Tracker

OFFLINE = ("offline", "dryrun")
QUIET = {"WANDB_ERROR_REPORTING": "false"}
"""W&B would report its own errors to its makers."""
LOGIN = 60
"""Seconds that a question for a key waits for an answer."""


def is_offline() -> bool:
    """Whether W&B was told to write files and to send nothing."""
    return os.environ.get("WANDB_MODE", "") in OFFLINE


def keeps_files() -> bool:
    """Whether runs are found nowhere but in files in the folders of the runs."""
    return is_offline() and not os.environ.get("WANDB_DIR")


class WandbTracker(Tracker):
    """A run of a W&B project; output, code and measures of the machine are not sent."""

    def __init__(self, run: TrackedRun) -> None:
        for name, value in QUIET.items():
            os.environ.setdefault(name, value)
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
            settings=wandb.Settings(
                silent=True,
                console="off",
                disable_git=True,
                disable_code=True,
                login_timeout=LOGIN,
                x_disable_stats=True,
                x_disable_machine_info=True,
            ),
        )

    def held(self) -> set[tuple[str, int]]:
        if not self._run.offline:
            return set()
        folder = Path(self._run.dir).parent.parent
        return {
            point
            for file in sorted(folder.glob(f"offline-run-*-{self._run.id}/*.wandb"))
            for point in read_points(file)
        }

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step, commit=True)

    def end(self, state: State) -> None:
        """Also ends W&B's process: it writes the last points after it has said that a run is finished."""
        import wandb

        self._run.summary["state"] = state
        self._run.finish(exit_code=0 if state == "finished" else 1)
        wandb.teardown()


def read_points(file: Path) -> Iterator[tuple[str, int]]:
    """The points in W&B's own file of a run, up to where it is torn."""
    from wandb.proto import wandb_internal_pb2
    from wandb.sdk.internal.datastore import DataStore

    messages: Any = wandb_internal_pb2  # its names are made when it is imported
    store: Any = DataStore()
    try:
        store.open_for_scan(str(file))
        while (data := store.scan_data()) is not None:
            record = messages.Record()
            record.ParseFromString(data)
            items = {(item.key or "/".join(item.nested_key)): item.value_json for item in record.history.item}
            if "_step" in items:
                yield from ((name, int(items["_step"])) for name in items if not name.startswith("_"))
    except AssertionError:  # how it says that the file ends in the middle of a record
        return
    finally:
        store.close()
