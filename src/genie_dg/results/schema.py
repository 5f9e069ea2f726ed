"""What a run left behind: its configuration, its records as one array of numbers, and whether it is complete.

A record says how right the model was at one step: ``in_acc[k]`` on the 80 % part of domain k, ``out_acc[k]`` on
the 20 % part. The records of a run are the rows of one float64 array with the columns

    step, epoch, loss, validation_loss, in_acc[0..D-1], out_acc[0..D-1]

for D domains: 8·(4 + 2·D) bytes a record. A loss that was not measured is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genie_dg.runs.record import RunConfig

Numbers = NDArray[np.float64]
"""Records as rows."""

LEADING = ("step", "epoch", "loss", "validation_loss")
"""The columns before the accuracies."""


class ResultsError(ValueError):
    """No table can be made as asked; the message says what came, what is allowed and what to do."""


@dataclass(frozen=True, eq=False)
class Run:
    """One training, as its folder tells it.

    Args:
        run_id: of the configuration.
        config: what was trained.
        domains: names, in the order of the accuracies.
        numbers: the records, by step.
        done: the run is complete.
        failures: of a run that is not complete, why attempts ended, in order.
        folder: where it was read.
        averaged: with SWAD, the one record of the averaged weights.
    """

    run_id: str
    config: RunConfig
    domains: tuple[str, ...]
    numbers: Numbers
    done: bool = True
    failures: tuple[str, ...] = ()
    folder: str = ""
    averaged: Numbers | None = None

    @property
    def steps(self) -> Numbers:
        return self.numbers[:, 0]

    @property
    def losses(self) -> Numbers:
        return self.numbers[:, 2]

    @property
    def in_acc(self) -> Numbers:
        return in_acc(self.numbers)

    @property
    def out_acc(self) -> Numbers:
        return out_acc(self.numbers)

    @property
    def judged(self) -> Numbers | None:
        """The records that selection looks at: with SWAD only that of the averaged weights, or none yet."""
        return self.averaged if self.config.swad else self.numbers

    def records(self) -> list[dict[str, Any]]:
        """The records as they are in ``records.jsonl``."""
        return [record_of(row) for row in self.numbers.tolist()]


def in_acc(numbers: Numbers) -> Numbers:
    """Accuracies on the 80 % parts: one row a record, one column a domain."""
    return numbers[:, len(LEADING) : (numbers.shape[1] + len(LEADING)) // 2]


def out_acc(numbers: Numbers) -> Numbers:
    """Accuracies on the 20 % parts: one row a record, one column a domain."""
    return numbers[:, (numbers.shape[1] + len(LEADING)) // 2 :]


def record_of(row: Sequence[float]) -> dict[str, Any]:
    """One row of the array as a record."""
    half = (len(row) + len(LEADING)) // 2
    told = {name: None if math.isnan(x) else x for name, x in zip(LEADING, row[: len(LEADING)], strict=True)}
    return {**told, "step": int(row[0]), "in_acc": list(row[len(LEADING) : half]), "out_acc": list(row[half:])}


def numbers_of(records: Sequence[Mapping[str, Any]], domains: int) -> Numbers:
    """Records as an array, each checked.

    >>> numbers_of([{"step": 5, "in_acc": [0.5, 0.25], "out_acc": [1.0, 0.0]}], 2).tolist()
    [[5.0, nan, nan, nan, 0.5, 0.25, 1.0, 0.0]]
    """
    rows = [row_of(record, domains) for record in records]
    return np.array(rows, dtype=np.float64).reshape(len(rows), len(LEADING) + 2 * domains)


def row_of(record: Any, domains: int) -> list[float]:
    """One record as a row of the array; what is no record is refused."""
    if not isinstance(record, Mapping):
        raise ResultsError(
            f"{_short(record)} came as a record; it must be an object with step, in_acc, out_acc."
        )
    step = record.get("step")
    if isinstance(step, bool) or not isinstance(step, int) or not 0 <= step < 2**53:
        raise ResultsError(f"step={_short(step)} came; it must be a whole number of at least 0.")
    row = [float(step)]
    for name in LEADING[1:]:
        value = record.get(name)
        if value is not None and not _is_number(value):
            raise ResultsError(f"{name}={_short(value)} came; it must be a number or null.")
        row.append(math.nan if value is None else float(value))
    for name in ("in_acc", "out_acc"):
        values = record.get(name)
        if not isinstance(values, (list, tuple)) or len(values) != domains:
            raise ResultsError(f"{name}={_short(values)} came; it must be a list of {domains} accuracies.")
        for value in values:
            if not _is_number(value) or not 0 <= value <= 1:
                raise ResultsError(f"{name} has {_short(value)}; accuracies are numbers from 0 to 1.")
            row.append(float(value))
    return row


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
