"""Sweeps written by hand, of any size, for tests of the page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl

from genie_dg.report import page
from genie_dg.report.numbers import Page, page_data
from genie_dg.results.frame import load
from genie_dg.runs.config import RunConfig, canonical

PACS = ("art_painting", "cartoon", "photo", "sketch")


@dataclass(frozen=True)
class Written:
    """A run that can be written to disk."""

    config: RunConfig
    records: Sequence[dict[str, Any]]
    domains: Sequence[str] = PACS
    done: bool = True
    failures: Sequence[str] = ()


def record(step: int, in_acc: Sequence[float], out_acc: Sequence[float], **more: Any) -> dict[str, Any]:
    """One line of ``records.jsonl``."""
    values = {"epoch": step / 10, "loss": 1.0, "validation_loss": 0.5}
    return {"step": step, **values, "in_acc": list(in_acc), "out_acc": list(out_acc), **more}


def run(
    test: Sequence[int],
    records: Sequence[dict[str, Any]],
    trial: int = 0,
    draw: int = 0,
    *,
    domains: Sequence[str] = PACS,
    done: bool = True,
    failures: Sequence[str] = (),
    **more: Any,
) -> Written:
    """A run with Adam on PACS, unless told."""
    values = {"dataset": "PACS", "optimizer": "adam", "backbone": "resnet50", "protocol": "domainbed", **more}
    config = RunConfig(test_domains=tuple(test), trial_seed=trial, hparams_seed=draw, **values)
    return Written(config, records, domains, done, failures)


def sweep(
    optimizers: Sequence[str] = ("adam", "genie"),
    trials: int = 2,
    draws: int = 2,
    records: int = 4,
    tests: Sequence[Sequence[int]] = ((0,), (1,), (2,), (3,)),
    **more: Any,
) -> list[Written]:
    """Runs whose accuracies rise; a later optimizer is better by a point."""
    random = np.random.default_rng(0)
    runs = []
    for place, optimizer in enumerate(optimizers):
        for test in tests:
            for trial in range(trials):
                for draw in range(draws):
                    top = 0.6 + 0.01 * place + 0.1 * random.random()
                    runs.append(_run(random, top, records, test, trial, draw, optimizer, **more))
    return runs


def _run(
    random: np.random.Generator,
    top: float,
    records: int,
    test: Sequence[int],
    trial: int,
    draw: int,
    optimizer: str,
    **more: Any,
) -> Written:
    lines = []
    for k in range(records):
        level = top * (1 - 0.7 * 0.8**k) + 0.02 * random.random((2, 4))
        level[:, list(test)] -= 0.1
        lines.append(record(300 * k, level[0].tolist(), level[1].tolist(), loss=2.0 - 0.1 * k))
    settings = {"lr": float(f"{10 ** random.uniform(-5, -3):.3g}")}
    return run(test, lines, trial, draw, optimizer=optimizer, optimizer_settings=settings, **more)


def write(folder: Path, one: Written) -> Path:
    """A run on disk."""
    path = folder / one.config.run_id
    path.mkdir(parents=True)
    (path / "config.json").write_text(canonical(one.config) + "\n")
    (path / "meta.json").write_text(json.dumps({"domains": list(one.domains), "torch": "2"}))
    (path / "records.jsonl").write_text("".join(json.dumps(line) + "\n" for line in one.records))
    if one.done:
        (path / "done").touch()
    if one.failures:
        lines = [json.dumps({"attempt": k, "reason": reason}) for k, reason in enumerate(one.failures)]
        (path / "failures.jsonl").write_text("\n".join(lines) + "\n")
    if one.config.swad and one.records:
        (path / "swad.json").write_text(json.dumps(one.records[-1]))
    return path


def written(folder: Path, runs: Sequence[Written], extra: str = "") -> Path:
    """The runs on disk; ``extra`` names a further number that each record carries."""
    for one in runs:
        lines = [{**line, extra: 2.0 - line["step"] / 1000} if extra else line for line in one.records]
        write(folder, Written(one.config, lines, one.domains, one.done, one.failures))
    return folder


@contextmanager
def frame_of(runs: Sequence[Written]) -> Iterator[pl.DataFrame]:
    """The frame of some runs, while they are on disk."""
    with TemporaryDirectory() as folder:
        yield load(written(Path(folder), runs), problems=[])


def report(runs: Sequence[Written], problems: Sequence[str] = (), *, mix: bool = False) -> str:
    """The page of some runs."""
    with frame_of(runs) as frame:
        return page.report(frame, problems, mix=mix)


def data_of(runs: Sequence[Written]) -> Page:
    """The numbers of that page."""
    with frame_of(runs) as frame:
        return page_data(frame)


__all__ = ["PACS", "Written", "data_of", "frame_of", "record", "report", "run", "sweep", "write", "written"]
