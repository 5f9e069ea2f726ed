"""A small run that is interrupted and goes on, and the points that a tracker must hold of it, once each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from genie_dg.bench.jobs import OpenSets, run_job
from genie_dg.bench.options import Job, RunOptions
from genie_dg.bench.train import Report
from genie_dg.runs.config import RunConfig
from genie_dg.runs.record import Record
from genie_dg.statistics import mean

CONFIG = RunConfig(
    "digits", (5,), backbone="mlp", batch_size=4, steps=10, checkpoint_every=3, optimizer_settings={"lr": 0.3}
)
STEPS = [0, 3, 6, 9]
DOMAINS = [f"{degrees} degrees" for degrees in range(0, 90, 15)]
"""Of the digits; the last one is left out."""
OPENED = OpenSets()

Point = tuple[str, int, float]


def job_in(out: Path, track: str) -> Job:
    return Job(CONFIG, "digits", RunOptions(out=str(out), track=track, group="some-sweep"))


class Interrupted(Exception):
    """What ends the first attempt."""


def stop_at(steps: int) -> Report:
    """A report that ends a training after so many steps."""

    def stop(done: int, record: Record | None) -> None:
        if done == steps:
            raise Interrupted("the first attempt ends here")

    return stop


def train_in_two_attempts(job: Job) -> None:
    """Stop right after the record of step 3, then go on to the end."""
    with pytest.raises(Interrupted):
        run_job(job, OPENED, stop_at(4))
    run_job(job, OPENED)


def expected(folder: Path) -> list[Point]:
    """What the file of records says, in the order of names and steps; the last domain is not trained on."""
    points: list[Point] = []
    for line in (folder / "records.jsonl").read_text().splitlines():
        record, values = json.loads(line), dict[str, float]()
        values["validation"] = mean(record["out_acc"][:-1])
        values |= {name: record[name] for name in ("loss", "validation_loss") if record[name] is not None}
        for part in ("in", "out"):
            for domain, accuracy in zip(DOMAINS, record[f"{part}_acc"], strict=True):
                kind = "unseen" if domain == DOMAINS[-1] else "seen"
                values |= {f"{kind}/{domain}/{part}": accuracy} if accuracy is not None else {}
        points += [(name, record["step"], value) for name, value in values.items()]
    return sorted(points)
