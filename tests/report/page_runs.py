"""Sweeps written by hand, of any size, for tests of the page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from genie_dg.results.schema import Run
from tests.results.build import PACS, record, run, write


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
    found = []
    for place, optimizer in enumerate(optimizers):
        for test in tests:
            for trial in range(trials):
                for draw in range(draws):
                    top = 0.6 + 0.01 * place + 0.1 * random.random()
                    found.append(_run(random, top, records, test, trial, draw, optimizer, **more))
    return found


def _run(
    random: np.random.Generator,
    top: float,
    records: int,
    test: Sequence[int],
    trial: int,
    draw: int,
    optimizer: str,
    **more: Any,
) -> Run:
    made = []
    for k in range(records):
        level = top * (1 - 0.7 * 0.8**k) + 0.02 * random.random((2, 4))
        level[:, list(test)] -= 0.1
        made.append(record(300 * k, level[0].tolist(), level[1].tolist()))
    settings = {"lr": float(f"{10 ** random.uniform(-5, -3):.3g}")}
    return run(test, made, trial, draw, optimizer=optimizer, optimizer_settings=settings, **more)


def written(folder: Path, runs: Sequence[Run], extra: str = "") -> Path:
    """The runs on disk; ``extra`` names a further number that each record carries."""
    for made in runs:
        path = write(folder, made)
        if extra:
            lines = [json.loads(line) for line in (path / "records.jsonl").read_text().splitlines()]
            told = [json.dumps({**line, extra: 2.0 - line["step"] / 1000}) for line in lines]
            (path / "records.jsonl").write_text("\n".join(told) + "\n")
    return folder


__all__ = ["PACS", "record", "run", "sweep", "write", "written"]
