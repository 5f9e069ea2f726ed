"""Sweeps written by hand, of any size, for tests of the page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from genie_dg.results import page
from genie_dg.results.page_data import Page, page_data

from .build import Run, frame_of, record, run, write


def sweep(
    optimizers: Sequence[str] = ("adam", "genie"),
    trials: int = 2,
    draws: int = 2,
    records: int = 4,
    tests: Sequence[Sequence[int]] = ((0,), (1,), (2,), (3,)),
    **more: Any,
) -> list[Run]:
    """Runs whose accuracies rise; a later optimizer is better by a point."""
    random = np.random.default_rng(0)
    runs = []
    for place, optimizer in enumerate(optimizers):
        for test in tests:
            for trial in range(trials):
                for draw in range(draws):
                    top = 0.6 + 0.01 * place + 0.1 * random.random()
                    lines = _rising(random, top, records, test)
                    settings = {"lr": float(f"{10 ** random.uniform(-5, -3):.3g}")}
                    settings = {"optimizer": optimizer, "optimizer_settings": settings}
                    runs.append(run(test, lines, trial, draw, **settings, **more))
    return runs


def _rising(random: np.random.Generator, top: float, records: int, test: Sequence[int]) -> list[dict[str, Any]]:
    lines = []
    for k in range(records):
        level = top * (1 - 0.7 * 0.8**k) + 0.02 * random.random((2, 4))
        level[:, list(test)] -= 0.1
        lines.append(record(300 * k, level[0].tolist(), level[1].tolist(), loss=2.0 - 0.1 * k))
    return lines


def written(folder: Path, runs: Sequence[Run]) -> Path:
    """The runs on disk."""
    for one in runs:
        write(folder, one)
    return folder


def report(runs: Sequence[Run], problems: Sequence[str] = (), *, mix: bool = False) -> str:
    """The page of some runs."""
    return page.report(frame_of(runs), problems, mix=mix)


def data_of(runs: Sequence[Run]) -> Page:
    """The numbers of that page."""
    return page_data(frame_of(runs))
