"""What a run can be watched for beside its records: how its weights move, and its OSGR.

A line of ``watch.jsonl`` in the run's folder belongs to a record. Watching changes nothing: the weights of a
run that is watched are those of one that is not, to the bit, and its name is the same.

- ``updates``: how evenly the weights moved since the last record (``update_gini``, ``update_top_1_percent``),
  how far (``update_norm``), and the mean movement in 40 groups of parameters (``heat``).
- ``osgr``: the one-step generalization ratio by its definition, on held-back samples of the training domains
  (``osgr`` with ``osgr_low`` and ``osgr_high``, of batches of ``osgr_n``).

After a run went on from a checkpoint the first line has the movement of one step less.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from genie_dg._types import MAIN
from genie_dg.check import one_of
from genie_dg.diagnostics.measured import measure_osgr
from genie_dg.diagnostics.updates import MeasurementError, UpdateRecorder
from genie_dg.files import append_line
from genie_dg.runs import folder as files
from genie_dg.runs.record import Record

from .assemble import Parts

Report = Callable[[int, Record | None], None]

WATCHES = ("updates", "osgr")
GROUPS, POOL, PAIRS = 40, 64, 4
"""Groups of parameters; samples of each training domain at most; pairs of batches that they are dealt into."""


def check_watches(names: Sequence[str]) -> tuple[str, ...]:
    """The names of what a run is watched for, all of them known."""
    return tuple(one_of("watch", name, WATCHES) for name in names)


def watching(parts: Parts, folder: Path, names: Sequence[str], report: Report | None = None) -> Report:
    """A report for `train` that also watches.

    Args:
        parts: of the run, not yet trained here.
        folder: of the run.
        names: some of `WATCHES`.
        report: called afterwards.
    """
    network = parts.algorithm.network
    fresh = not files.has_checkpoint(folder)
    recorders = [UpdateRecorder(network, bins=GROUPS)] if "updates" in names and fresh else []

    def watched(done: int, record: Record | None) -> None:
        if "updates" in names and not recorders:
            recorders.append(UpdateRecorder(network, bins=GROUPS))
        if record is not None and parts.world.first:
            line: dict[str, Any] = {"step": record.step}
            try:
                if "updates" in names:
                    line |= _updates(recorders[0], record.step)
                if "osgr" in names:
                    line |= _osgr(parts)
            except MeasurementError as error:
                line["problem"] = str(error)
            append_line(folder / files.WATCH, line)
        if report is not None:
            report(done, record)

    return watched


def _updates(recorder: UpdateRecorder, step: int) -> dict[str, Any]:
    measured = recorder.record(step)
    names = [name for name in ("gini", "top_1_percent", "norm") if name in measured]
    return {f"update_{name}": measured[name] for name in names} | {
        "heat": [float(f"{value:.3g}") for value in recorder.heatmap().values[-1]]
    }


def _osgr(parts: Parts) -> dict[str, float]:
    pairs = [_held_back(parts, k) for k in parts.sources]
    pool = torch.cat([x for x, _ in pairs]), torch.cat([y for _, y in pairs])
    n = min(parts.config.batch_size * len(parts.sources), len(pool[1]) // (2 * PAIRS))
    network, optimizer = parts.algorithm.network, parts.optimizers[MAIN]
    with warnings.catch_warnings():  # the copies whose gradients keep their graph are thrown away
        warnings.filterwarnings("ignore", r"Using backward\(\) with create_graph=True")
        measured = measure_osgr(network, optimizer, _loss, pool, n, create_graph=parts.create_graph)
    values = {name: measured.as_floats()[name] for name in ("osgr", "osgr_low", "osgr_high")}
    return {name: x for name, x in values.items() if math.isfinite(x)} | {"osgr_n": n}


def _held_back(parts: Parts, domain: int) -> tuple[Tensor, Tensor]:
    """The first samples of a domain's part that does not train."""
    images, labels, count = [], [], 0
    for x, y in parts.evaluations[domain, "out"]:
        images.append(x[: POOL - count])
        labels.append(y[: POOL - count])
        count += len(labels[-1])
        if count == POOL:
            break
    return torch.cat(images), torch.cat(labels)


def _loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y)
