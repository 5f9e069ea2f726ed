"""TensorBoard's files, read back by TensorBoard."""

from __future__ import annotations

from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util.tensor_util import make_ndarray

from .runs import expected, job_in, train_in_two_attempts


def test_a_run_in_two_attempts_has_every_point_once(tmp_path: Path) -> None:
    job = job_in(tmp_path, "tensorboard")
    train_in_two_attempts(job)
    folder = job.folder / "tensorboard"
    assert len(list(folder.glob("events*"))) == 2
    events = EventAccumulator(str(folder), {"scalars": 0, "tensors": 0}).Reload()
    points = [(tag, one.step, one.value) for tag in events.Tags()["scalars"] for one in events.Scalars(tag)]
    wanted = expected(job.folder)
    assert [point[:2] for point in sorted(points)] == [point[:2] for point in wanted]
    assert [point[2] for point in sorted(points)] == pytest.approx([point[2] for point in wanted], rel=1e-6)
    texts = {
        tag: [make_ndarray(one.tensor_proto).item().decode() for one in events.Tensors(tag)]
        for tag in events.Tags()["tensors"]
    }
    assert texts["state/text_summary"] == ["failed", "finished"]
    (table,) = texts["parameters/text_summary"]
    assert "| optimizer_settings.lr | 0.3 |" in table
    assert "| test_domains | 75 degrees |" in table
