"""TensorBoard's files, read back by TensorBoard."""

from __future__ import annotations

from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util.tensor_util import make_ndarray

from genie_dg.bench.jobs import run_job
from genie_dg.files import FileWarning

from .runs import OPENED, Interrupted, expected, job_in, stop_at, train_in_two_attempts


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


def test_records_that_are_made_again_are_there_once(tmp_path: Path) -> None:
    """The checkpoint of step 6 is damaged, so the run goes back to that of step 3."""
    job = job_in(tmp_path, "tensorboard")
    with pytest.raises(Interrupted):
        run_job(job, OPENED, stop_at(8))
    (job.folder / "checkpoint.pt").write_bytes(b"damaged")
    with pytest.warns(FileWarning, match="goes on from the checkpoint before"):
        run_job(job, OPENED)
    events = EventAccumulator(str(job.folder / "tensorboard"), {"scalars": 0}).Reload()
    assert [event.step for event in events.Scalars("loss")] == [0, 3, 6, 9]
