"""Weights & Biases offline: its own files, read back with its own code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .runs import Point, expected, job_in, train_in_two_attempts

pytest.importorskip("wandb", reason="W&B is not installed: the extra wandb brings it")


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    for name in ("WANDB_DIR", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)


def written(folder: Path) -> Iterator[Any]:
    """The records in the files of a run, the oldest file first."""
    from wandb.proto.wandb_internal_pb2 import Record
    from wandb.sdk.internal.datastore import DataStore

    for file in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        store: Any = DataStore()
        store.open_for_scan(str(file))
        while (data := store.scan_data()) is not None:
            record = Record()
            record.ParseFromString(data)
            yield record
        store.close()


def history(records: list[Any]) -> list[Point]:
    points = []
    for record in records:
        row = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
        step = int(row.get("_step", -1))
        points += [(name, step, json.loads(text)) for name, text in row.items() if name[0] != "_"]
    return sorted(points)


def test_a_run_in_two_attempts_has_every_point_once(tmp_path: Path) -> None:
    job = job_in(tmp_path, "wandb")
    train_in_two_attempts(job)
    records = list(written(job.folder))
    assert history(records) == expected(job.folder)
    runs = [record.run for record in records if record.WhichOneof("record_type") == "run"]
    assert {(run.run_id, run.display_name, run.run_group, run.project) for run in runs} == {
        (job.config.run_id, job.config.run_id, "some-sweep", "genie-dg")
    }
    settings = {item.key: json.loads(item.value_json) for item in runs[0].config.update}
    assert settings["optimizer_settings.lr"] == 0.3
    assert "version.torch" in settings
    codes = [record.exit.exit_code for record in records if record.WhichOneof("record_type") == "exit"]
    assert codes == [1, 0]
