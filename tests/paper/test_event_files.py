"""Event files, written by TensorBoard itself."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from torch.utils.tensorboard import SummaryWriter

from paper.event_files import scalars
from paper.request import PaperError


def write(folder: Path, **series: list[float]) -> Path:
    writer = SummaryWriter(str(folder))
    for name, values in series.items():
        for step, value in enumerate(values):
            writer.add_scalar(f"te_L/{name}/{name}", value, 1000 * step)
            writer.add_scalar("te_L/summary/loss", 7.0, step)
    writer.close()
    (path,) = folder.glob("events.out.tfevents.*")
    return path


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = write(tmp_path, OSGR=[0.99, -0.5], GSNR=[3e-7])
    found = scalars(path, ("/OSGR/OSGR", "/GSNR/GSNR", "/NONE"))
    assert [step for step, _ in found["/OSGR/OSGR"]] == [0, 1000]
    assert [value for _, value in found["/OSGR/OSGR"]] == pytest.approx([0.99, -0.5], rel=1e-6)
    assert found["/GSNR/GSNR"] == [(0, pytest.approx(3e-7))]
    assert found["/NONE"] == []


def test_a_file_that_was_cut_gives_what_is_whole(tmp_path: Path) -> None:
    path = write(tmp_path, OSGR=[0.1, 0.2, 0.3])
    path.write_bytes(path.read_bytes()[:-60])
    assert [step for step, _ in scalars(path, ("/OSGR/OSGR",))["/OSGR/OSGR"]] == [0, 1000]


def test_other_bytes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "events"
    record = bytes([0b0000_0011]) + b"/OSGR/OSGR"
    path.write_bytes(struct.pack("<Q", len(record)) + b"0000" + record + b"0000")
    with pytest.raises(PaperError, match="not an event file of TensorBoard: a field has the unknown kind 3"):
        scalars(path, ("/OSGR/OSGR",))
