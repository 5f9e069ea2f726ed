"""Runs written by hand: described in memory, written as run folders, read as a frame."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from genie_dg.results.frame import load
from genie_dg.runs.config import RunConfig, canonical
from genie_dg.runs.outcome import Ending, Outcome, note_outcome

PACS = ("art_painting", "cartoon", "photo", "sketch")


@dataclass(frozen=True)
class Run:
    """What the folder of a run holds; ``averaged`` is the record of SWAD's averaged weights."""

    config: RunConfig
    domains: tuple[str, ...]
    records: tuple[dict[str, Any], ...]
    done: bool = True
    outcomes: tuple[Outcome, ...] = ()
    averaged: dict[str, Any] | None = None

    @property
    def run_id(self) -> str:
        return self.config.run_id


def record(step: int, in_acc: Sequence[float], out_acc: Sequence[float], **more: Any) -> dict[str, Any]:
    accuracies = {"in_acc": [float(x) for x in in_acc], "out_acc": [float(x) for x in out_acc]}
    return {"step": step, "epoch": step / 10, "loss": 1.0, "validation_loss": 0.5, **accuracies, **more}


def config(test: Sequence[int], trial: int = 0, draw: int = 0, **more: Any) -> RunConfig:
    usual = {"dataset": "PACS", "optimizer": "adam", "backbone": "resnet50", "protocol": "domainbed", **more}
    return RunConfig(test_domains=tuple(test), trial_seed=trial, hparams_seed=draw, **usual)


def run(
    test: Sequence[int],
    records: Sequence[dict[str, Any]],
    trial: int = 0,
    draw: int = 0,
    *,
    domains: Sequence[str] = PACS,
    done: bool = True,
    outcomes: Sequence[Outcome] = (),
    averaged: dict[str, Any] | None = None,
    **more: Any,
) -> Run:
    """A run; ``more`` are fields of its configuration."""
    what = config(test, trial, draw, **more)
    return Run(what, tuple(domains), tuple(records), done, tuple(outcomes), averaged)


def failed(*reasons: str) -> tuple[Outcome, ...]:
    """Attempts that failed."""
    return tuple(Outcome(Ending.failed, reason, attempt=k) for k, reason in enumerate(reasons, 1))


DIVERGED = Outcome(Ending.diverged, "The loss of step 9 is nan.", "NotFinite")


def lines(records: Sequence[dict[str, Any]]) -> str:
    return "".join(json.dumps(one, sort_keys=True) + "\n" for one in records)


def write(folder: Path, one: Run, text: str | None = None) -> Path:
    """A run on disk; ``text`` replaces its records."""
    path = folder / one.run_id
    path.mkdir(parents=True)
    (path / "config.json").write_text(canonical(one.config) + "\n")
    (path / "meta.json").write_text(json.dumps({"domains": list(one.domains), "torch": "2"}))
    (path / "records.jsonl").write_text(lines(one.records) if text is None else text)
    if one.done:
        (path / "done").touch()
    for outcome in one.outcomes:
        note_outcome(path, outcome)
    if one.averaged is not None:
        (path / "swad.json").write_text(json.dumps({**one.averaged, "swad": True}))
    return path


def frame_of(runs: Sequence[Run]) -> pl.DataFrame:
    """The frame of some runs, through folders that are gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        for one in runs:
            write(Path(folder), one)
        return load(folder, problems=[])


def random_run(random: np.random.Generator, test: Sequence[int], count: int = 4, **more: Any) -> Run:
    """Accuracies from a few values, so that ties are common."""
    domains = tuple(f"d{k}" for k in range(count))
    records = [
        record(10 * step, random.integers(0, 4, count) / 4, random.integers(0, 4, count) / 4)
        for step in range(int(random.integers(1, 6)))
    ]
    return run(test, records, domains=domains, **more)


def same_frames(one: pl.DataFrame, other: pl.DataFrame) -> bool:
    """All columns alike; polars does not compare objects."""
    plain = one.drop("config").equals(other.drop("config"))
    return plain and one["config"].to_list() == other["config"].to_list()
