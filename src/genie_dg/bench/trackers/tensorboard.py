"""TensorBoard's files, in the folder ``tensorboard`` of each run.

Every process that works on a run begins a file of its own, and TensorBoard shows all of them as one run.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch.utils.tensorboard import SummaryWriter

from genie_dg.runs.outcome import Ending

from .tracker import TrackedRun, Tracker


class TensorBoardTracker(Tracker):
    """A writer of scalars, flushed at every record."""

    def __init__(self, run: TrackedRun) -> None:
        self._run, self._folder = run, run.folder / "tensorboard"
        self._writer: SummaryWriter | None = None

    def log(self, step: int, values: Mapping[str, float]) -> None:
        writer = self._writer or self._opened(step)
        for name, value in values.items():
            writer.add_scalar(name, value, step)
        writer.flush()

    def end(self, ending: Ending) -> None:
        writer = self._writer or self._opened(None)
        writer.add_text("state", ending.value)
        writer.close()

    def _opened(self, step: int | None) -> SummaryWriter:
        """A new file; what earlier ones hold from this step on is made again, and TensorBoard leaves it out."""
        is_first = not self._folder.exists()
        self._writer = SummaryWriter(str(self._folder), purge_step=step)
        if is_first:
            self._writer.add_text("parameters", table(self._run.parameters))
        return self._writer


def table(parameters: Mapping[str, object]) -> str:
    """Names and values as a table of Markdown, which TensorBoard renders.

    >>> print(table({"steps": 300}))
    | name | value |
    |---|---|
    | steps | 300 |
    """
    return "\n".join(["| name | value |", "|---|---|", *(f"| {k} | {v} |" for k, v in parameters.items())])
