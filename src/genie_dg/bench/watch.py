"""What a run can be watched for beside its records: how its weights move, and its OSGR.

A line of ``watch.jsonl`` in the run's folder belongs to a record. Watching changes nothing: the weights of a
run that is watched are those of one that is not, to the bit, and its name is the same.

- ``updates``: how evenly the weights moved since the last record (``update_gini``, ``update_top_1_percent``),
  how far (``update_norm``), and the mean movement in 40 groups of parameters (``heat``).
- ``osgr``: the one-step generalization ratio by its definition, on held-back samples of the training domains
  (``osgr`` with ``osgr_low`` and ``osgr_high``, of batches of ``osgr_n``).

A line is written before the checkpoint that counts its record. When a run goes on, lines beyond the checkpoint
are cut off, as records are, and weights move from those of the checkpoint on: every line is there once, and is
the one that an undisturbed run writes.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from genie_dg._types import MAIN
from genie_dg.check import one_of
from genie_dg.diagnostics.measured import measure_osgr
from genie_dg.diagnostics.updates import MeasurementError, UpdateRecorder
from genie_dg.files import append_line, json_line, read_lines, write_whole
from genie_dg.runs.folder import WATCH
from genie_dg.runs.record import Record

from .assemble import Parts

WATCHES = ("updates", "osgr")
HEAT_GROUPS = 40
"""Groups of parameters whose mean movement is written down."""
_PAIRS = 4
"""Pairs of batches that the samples are dealt into."""


def check_watches(names: Sequence[str]) -> tuple[str, ...]:
    """The names of what a run is watched for, all of them known."""
    return tuple(one_of("watch", name, WATCHES) for name in names)


class Watcher:
    """Watches one run while `train` trains it; only the first of several processes does.

    Args:
        parts: of the run.
        folder: of the run.
        names: some of `WATCHES`.
    """

    def __init__(self, parts: Parts, folder: Path, names: Sequence[str]) -> None:
        self._parts, self._folder, self._names = parts, folder, names
        self._recorder: UpdateRecorder | None = None

    def begin(self, step: int) -> None:
        """The weights are those from which ``step`` is taken; lines from there on are made again."""
        if "updates" in self._names:
            self._recorder = UpdateRecorder(self._parts.algorithm.network, bins=HEAT_GROUPS)
        cut_lines(self._folder, step)

    def add(self, record: Record) -> None:
        """Write the line of a record, with the weights and the optimizer as they are."""
        line: dict[str, Any] = {"step": record.step}
        try:
            if self._recorder is not None:
                line |= _updates(self._recorder, record.step)
            if "osgr" in self._names:
                line |= _osgr(self._parts)
        except MeasurementError as error:
            line["problem"] = str(error)
        append_line(self._folder / WATCH, line)


def cut_lines(folder: Path, step: int) -> None:
    """Leave the lines of records from before a step; a torn line goes, too."""
    lines, torn = read_lines(folder / WATCH)
    kept = [line for line in lines if isinstance(at := line.get("step"), int) and at < step]
    if torn or len(kept) < len(lines):
        write_whole(folder / WATCH, "".join(map(json_line, kept)).encode("utf-8"))


def _updates(recorder: UpdateRecorder, step: int) -> dict[str, Any]:
    measured = recorder.record(step)
    names = [name for name in ("gini", "top_1_percent", "norm") if name in measured]
    heat = [float(f"{value:.3g}") for value in recorder.heatmap().values[-1]]
    return {**{f"update_{name}": measured[name] for name in names}, "heat": heat}


def _osgr(parts: Parts) -> dict[str, float]:
    pairs = [next(iter(parts.evaluations[k, "out"])) for k in parts.sources]  # one batch of each
    pool = torch.cat([x for x, _ in pairs]), torch.cat([y for _, y in pairs])
    n = min(parts.config.batch_size * len(parts.sources), len(pool[1]) // (2 * _PAIRS))
    network, optimizer = parts.algorithm.network, parts.optimizers[MAIN]
    with warnings.catch_warnings():  # the copies whose gradients keep their graph are thrown away
        warnings.filterwarnings("ignore", r"Using backward\(\) with create_graph=True")
        measured = measure_osgr(network, optimizer, _loss, pool, n, create_graph=parts.create_graph)
    values = {name: measured.as_floats()[name] for name in ("osgr", "osgr_low", "osgr_high")}
    return {name: x for name, x in values.items() if math.isfinite(x)} | {"osgr_n": n}


def _loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y)
