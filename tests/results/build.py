"""Runs written by hand, in memory and on disk."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from genie_dg.results.schema import Run, numbers_of

from genie_dg.runs.record import RunConfig, canonical

PACS = ("art_painting", "cartoon", "photo", "sketch")


def record(step: int, in_acc: Sequence[float], out_acc: Sequence[float], **more: Any) -> dict[str, Any]:
    told = {"epoch": step / 10, "loss": 1.0, "validation_loss": 0.5}
    return {"step": step, **told, "in_acc": list(in_acc), "out_acc": list(out_acc), **more}


def config(test: Sequence[int], trial: int = 0, draw: int = 0, **more: Any) -> RunConfig:
    told = {"dataset": "PACS", "optimizer": "adam", "backbone": "resnet50", "protocol": "domainbed", **more}
    return RunConfig(test_domains=tuple(test), trial_seed=trial, hparams_seed=draw, **told)


def run(
    test: Sequence[int],
    records: Sequence[dict[str, Any]],
    trial: int = 0,
    draw: int = 0,
    *,
    domains: Sequence[str] = PACS,
    done: bool = True,
    failures: Sequence[str] = (),
    averaged: dict[str, Any] | None = None,
    **more: Any,
) -> Run:
    """A run in memory."""
    what = config(test, trial, draw, **more)
    made = Run(what.run_id, what, tuple(domains), numbers_of(records, len(domains)), done, tuple(failures))
    return replace(made, averaged=numbers_of([averaged], len(domains))) if averaged else made


def write(folder: Path, made: Run, text: str | None = None) -> Path:
    """A run on disk; ``text`` replaces its records."""
    path = folder / made.run_id
    path.mkdir(parents=True)
    (path / "config.json").write_text(canonical(made.config) + "\n")
    (path / "meta.json").write_text(json.dumps({"domains": list(made.domains), "torch": "2"}))
    lines = "".join(json.dumps(r, sort_keys=True) + "\n" for r in made.records())
    (path / "records.jsonl").write_text(lines if text is None else text)
    if made.done:
        (path / "done").touch()
    if made.failures:
        told = [json.dumps({"attempt": k, "reason": reason}) for k, reason in enumerate(made.failures)]
        (path / "failures.jsonl").write_text("\n".join(told) + "\n")
    if made.averaged is not None:
        row = made.averaged[0].tolist()
        half = len(made.domains)
        (path / "swad.json").write_text(json.dumps(record(int(row[0]), row[4 : 4 + half], row[4 + half :])))
    return path


def random_run(random: np.random.Generator, test: Sequence[int], count: int = 4, **more: Any) -> Run:
    """Accuracies from a few values, so that ties are common."""
    domains = tuple(f"d{k}" for k in range(count))
    records = [
        record(10 * step, random.integers(0, 4, count) / 4, random.integers(0, 4, count) / 4)
        for step in range(int(random.integers(1, 6)))
    ]
    return run(test, records, domains=domains, **more)
