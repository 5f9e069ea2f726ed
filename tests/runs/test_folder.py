"""The folder of a run: held by one process, begun once, its tensors and records written and read whole."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from genie_dg.files import Busy, FileError, append_line
from genie_dg.runs import folder
from genie_dg.runs.config import RunConfig, canonical
from genie_dg.runs.record import Record

CONFIG = RunConfig("digits", (0,))


def record(step: int) -> Record:
    return Record(step, 0.5, None, 0.25, (0.5, 0.25), (1.0, step / 100))


def test_a_folder_is_held_by_one_process(tmp_path: Path) -> None:
    code = "import sys\nfrom pathlib import Path\nfrom genie_dg.runs.folder import alone\n"
    code += "with alone(Path(sys.argv[1])): pass"
    run = tmp_path / "runs" / "ab12"
    with folder.alone(run):
        assert run.is_dir()
        done = subprocess.run(
            [sys.executable, "-c", code, str(run)], capture_output=True, text=True, check=False
        )
        assert "Busy: Another process (" in done.stderr
        assert f") trains {run} right now; wait until it ends." in done.stderr
        with pytest.raises(Busy), folder.alone(run):
            pass
    with folder.alone(run):
        pass


def test_a_run_is_begun_once(tmp_path: Path) -> None:
    (tmp_path / "records.jsonl.99.part").write_text("of a process that was killed")
    folder.begin(tmp_path, CONFIG, {"domains": ["a", "b"]})
    first = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert first.keys() == {"config.json", "meta.json"}
    assert first["config.json"].decode() == canonical(CONFIG) + "\n"
    folder.begin(tmp_path, CONFIG, {"domains": ["a", "b"], "torch": "other"})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == first
    for damaged in (b"", b"[", b'{"domains": ["a", "c"]}'):
        (tmp_path / "meta.json").write_bytes(damaged)
        folder.begin(tmp_path, CONFIG, {"domains": ["a", "b"]})
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == first
    with pytest.raises(FileError, match=r"holds another run; choose another folder, or remove it\.$"):
        folder.begin(tmp_path, RunConfig("digits", (1,)), {})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == first


def test_records_come_back(tmp_path: Path) -> None:
    assert folder.read_records(tmp_path, 2) == folder.read_records(tmp_path, 2, 0) == []
    records = [record(step) for step in (0, 10, 20)]
    for one in records:
        append_line(tmp_path / folder.RECORDS, one.to_json())
    assert folder.read_records(tmp_path, 2) == records
    assert folder.read_records(tmp_path, 2, 2) == records[:2]
    with pytest.raises(FileError, match=r"has 3 records of 4; remove its folder and run it again\.$"):
        folder.read_records(tmp_path, 2, 4)
    with pytest.raises(
        FileError, match=r"has a line that is not a record \(got 2 accuracies in in_acc.*\); remove its folder"
    ):
        folder.read_records(tmp_path, 3)


def test_a_torn_line_counts_only_where_it_is_asked_for(tmp_path: Path) -> None:
    folder.cut_records(tmp_path, [record(0), record(10)])
    path = tmp_path / folder.RECORDS
    with path.open("a") as file:
        file.write('{"step": 20, "in_')
    assert folder.read_records(tmp_path, 2, 2) == [record(0), record(10)]
    for count in (None, 3):
        with pytest.raises(FileError, match="has 2 records of 3"):
            folder.read_records(tmp_path, 2, count)


def test_a_broken_line_before_others_is_not_skipped(tmp_path: Path) -> None:
    folder.cut_records(tmp_path, [record(0), record(10), record(20)])
    path = tmp_path / folder.RECORDS
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], "{", lines[2]]) + "\n")
    with pytest.raises(FileError, match="has 1 records of 2"):
        folder.read_records(tmp_path, 2, 2)


def test_losses_that_are_not_finite_are_read(tmp_path: Path) -> None:
    (tmp_path / folder.RECORDS).write_text(
        '{"step": 0, "epoch": 0, "loss": Infinity, "validation_loss": NaN, "in_acc": [0.5], "out_acc": [0.5]}\n'
    )
    (one,) = folder.read_records(tmp_path, 1)
    assert one.loss == float("inf")


def test_records_are_cut(tmp_path: Path) -> None:
    path = tmp_path / folder.RECORDS
    records = [record(step) for step in (0, 10, 20)]
    folder.cut_records(tmp_path, records)
    whole, when = path.read_bytes(), path.stat().st_mtime_ns
    folder.cut_records(tmp_path, records)
    assert path.stat().st_mtime_ns == when  # nothing to do
    folder.cut_records(tmp_path, records[:1])
    assert path.read_bytes() == whole.splitlines(keepends=True)[0]
    folder.cut_records(tmp_path, [])
    assert path.read_bytes() == b""


def test_a_log_has_the_digest_of_its_file(tmp_path: Path) -> None:
    log = folder.RecordLog(tmp_path, [record(0)])
    log.append(record(10))
    assert (log.count, log.digest) == (2, hashlib.sha256(log.path.read_bytes()).hexdigest())
    assert folder.read_records(tmp_path, 2, 2, log.digest) == [record(0), record(10)]
    log.path.write_text(log.path.read_text().replace("0.25", "0.75"))
    with pytest.raises(FileError, match=r"records.jsonl was changed after it was written; remove its folder"):
        folder.read_records(tmp_path, 2, 2, log.digest)
