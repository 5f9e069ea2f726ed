"""TensorBoard's files, in the folder ``tensorboard`` of each run.

Every process that works on a run begins a file of its own, and TensorBoard shows all of them as one run. What
they hold is read back when a run goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

from .tracker import State, TrackedRun, Tracker

FOLDER = "tensorboard"


class TensorBoardTracker(Tracker):
    """A writer of scalars, flushed at every record."""

    def __init__(self, run: TrackedRun) -> None:
        self._folder = str(run.folder / FOLDER)
        self._held = read_points(self._folder)
        self._writer = SummaryWriter(self._folder)
        if not self._held:
            self._text("parameters", table(run.parameters))

    def held(self) -> set[tuple[str, int]]:
        return set(self._held)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def end(self, state: State) -> None:
        self._text("state", state)
        self._writer.close()

    def _text(self, name: str, text: str) -> None:
        self._writer.add_text(name, text)
        self._writer.flush()


def table(parameters: Mapping[str, object]) -> str:
    """Names and values as a table of Markdown, which TensorBoard renders.

    >>> print(table({"steps": 300}))
    | name | value |
    |---|---|
    | steps | 300 |
    """
    return "\n".join(["| name | value |", "|---|---|", *(f"| {k} | {v} |" for k, v in parameters.items())])


def read_points(folder: str) -> set[tuple[str, int]]:
    """The scalars in all files of a folder; a file ends where it is torn."""
    from tensorboard.backend.event_processing.event_accumulator import (  # type: ignore[import-untyped]
        EventAccumulator,
    )

    if not Path(folder).is_dir():
        return set()
    events = EventAccumulator(folder, {"scalars": 0, "tensors": 0}).Reload()  # 0 keeps all
    tags = events.Tags()
    scalars = {(tag, event.step) for tag in tags["scalars"] for event in events.Scalars(tag)}
    return scalars | {(tag, event.step) for tag in tags["tensors"] for event in events.Tensors(tag)}
