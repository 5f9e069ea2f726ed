"""The draws of each row in each split, as training-domain validation sees them: what a comparison is made of.

A run whose loss became infinite or NaN is a draw that is selected last, with the test accuracy of its last
record: a row that diverges pays for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from math import inf
from typing import Any

import msgspec
import polars as pl

from .select import best_records, diverged_draws
from .stats import SplitKey


@dataclass(frozen=True)
class Candidate:
    """One run as training-domain validation sees it: one draw of one row in one split.

    Args:
        row: the name of its row.
        algorithm, optimizer: of the row.
        dataset, test_domains, trial: the split.
        draw: the seed of the hyper-parameters.
        step: of the record that stands for the run.
        validation: the highest mean ``out_acc`` of the training domains over the run's records; minus infinity
            if the run diverged.
        test: the mean ``in_acc`` of the test domains in the first record that has it.
        steps: of training.
        protocol: whose rules the run follows.
        config: of the run.
        run, folder: the run, and where it is.
    """

    row: str
    dataset: str
    test_domains: tuple[int, ...]
    trial: int
    draw: int
    validation: float
    test: float
    steps: int = 0
    protocol: str = ""
    config: Any = field(default=None, compare=False)
    run: str = ""
    folder: str = ""
    algorithm: str = ""
    optimizer: str = ""
    step: int = -1

    @property
    def split(self) -> SplitKey:
        """Where it is compared."""
        return self.dataset, self.test_domains, self.trial

    @property
    def science(self) -> bytes:
        """What the run is, up to its trial; runs of equal science are repeats of each other."""
        if self.config is None:
            return b""
        return msgspec.json.encode({**msgspec.to_builtins(self.config), "trial_seed": 0}, order="sorted")


def candidates(frame: pl.DataFrame) -> list[Candidate]:
    """One candidate for each complete run that has a record and a training domain, by (row, split, draw)."""
    return _sorted(as_candidates(best_records(frame)))


def diverged(frame: pl.DataFrame) -> list[Candidate]:
    """The same for the runs that diverged beside complete ones, with the test accuracy of the last record."""
    runs = diverged_draws(frame).filter(pl.col("validation").list.last().is_not_nan())
    last = {"score": pl.col("test").list.last(), "chosen_step": pl.col("step").list.last()}
    return _sorted(as_candidates(runs.with_columns(value=pl.lit(-inf), **last)))


def _sorted(listed: list[Candidate]) -> list[Candidate]:
    return sorted(listed, key=lambda c: (c.row, c.split, c.draw, c.run))


def as_candidates(runs: pl.DataFrame) -> list[Candidate]:
    """A candidate for each run of a frame that has the ``value`` and the ``score`` that stand for it."""
    renamed = {"validation": pl.col("value"), "test": pl.col("score"), "step": pl.col("chosen_step")}
    names = [f.name for f in fields(Candidate) if f.name not in renamed]
    rows = runs.select(*names, **renamed).iter_rows(named=True)
    return [Candidate(**{**values, "test_domains": tuple(values["test_domains"])}) for values in rows]


Grouped = dict[str, dict[SplitKey, list[Candidate]]]
"""By row and split the draws, from the worst validation to the best: the last one is selected."""


def group(listed: Iterable[Candidate]) -> Grouped:
    """Sort candidates by row and split, one for each draw.

    Runs with one draw's seed but other settings, as by hand, are draws each. Of repeats the first counts.
    """
    first: dict[tuple[str, SplitKey, int, bytes], Candidate] = {}
    for c in listed:
        first.setdefault((c.row, c.split, c.draw, c.science), c)
    grouped: Grouped = {}
    for c in sorted(first.values(), key=lambda c: (c.row, c.split, c.validation, c.draw, c.run)):
        grouped.setdefault(c.row, {}).setdefault(c.split, []).append(c)
    return grouped


def draws_of(frame: pl.DataFrame) -> Grouped:
    """By row and split the draws of a frame."""
    return group([*candidates(frame), *diverged(frame)])
