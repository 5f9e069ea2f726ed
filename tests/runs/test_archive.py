"""Runs in one file: read as the folder they came from, grown without losing any, never unpacked blindly."""

from __future__ import annotations

import io
import lzma
import tarfile
from pathlib import Path

import numpy as np
import pytest

from genie_dg.check import InputError
from genie_dg.cli.main import main
from genie_dg.results.frame import load
from genie_dg.results.tables import tables
from genie_dg.runs.archive import ARCHIVE, pack_runs, unpacked
from genie_dg.runs.config import RunConfig
from genie_dg.runs.seal import seal
from genie_dg.runs.sweep_list import read_list, write_list

from ..results.build import DIVERGED, Run, failed, random_run, same_frames, write


def some_runs(folder: Path, trials: range) -> list[Run]:
    """Sealed runs with a model beside the records."""
    runs = [random_run(np.random.default_rng(trial), [trial % 4], trial=trial) for trial in trials]
    for one in runs:
        path = write(folder, one)
        (path / "model.pt").write_bytes(b"weights")
        (path / "launch.json").write_text('{"command": ["train", "digits"]}')
        seal(path)
    return runs


def test_an_archive_is_read_as_the_folder_it_came_from(tmp_path: Path) -> None:
    runs = some_runs(tmp_path / "runs", range(6))
    write(tmp_path / "runs", random_run(np.random.default_rng(9), [0], trial=9, done=False))
    write_list(tmp_path / "runs", "mine", [one.config for one in runs])
    (tmp_path / "runs" / "sweeps" / "mine.toml").write_text("name = 'mine'")
    (tmp_path / "study").mkdir()
    assert pack_runs(tmp_path / "runs", tmp_path / "study" / ARCHIVE) == (6, 6)
    frame, original = load(tmp_path / "study", problems=[]), load(tmp_path / "runs", problems=[])
    assert same_frames(frame.drop("folder"), original.filter(original["done"]).drop("folder"))
    assert frame["sweeps"][0].to_list() == [{"name": "mine", "toml": "name = 'mine'", "protocol": ""}]
    assert frame["command"].to_list()[0] == ["train", "digits"]
    assert not list(Path(unpacked(str(tmp_path / "study" / ARCHIVE))).glob("*/model.pt"))
    listed = read_list(Path(unpacked(str(tmp_path / "study" / ARCHIVE))) / "sweeps" / "mine.json")[1]
    assert [one.run_id for one in listed] == [one.run_id for one in runs]
    assert isinstance(listed[0], RunConfig)


def test_what_is_unpacked_keeps_its_date_and_its_seal(tmp_path: Path) -> None:
    some_runs(tmp_path / "runs", range(1))
    pack_runs(tmp_path / "runs", tmp_path / ARCHIVE)
    problems: list[str] = []
    frame = load(tmp_path, problems=problems)
    done = Path(frame["folder"][0]) / "done"
    original = tmp_path / "runs" / frame["run"][0] / "done"
    assert not problems
    assert (done.read_bytes(), int(done.stat().st_mtime)) == (
        original.read_bytes(),
        int(original.stat().st_mtime),
    )


def test_an_archive_grows_and_loses_nothing(tmp_path: Path) -> None:
    some_runs(tmp_path / "first", range(3))
    some_runs(tmp_path / "second", range(2, 5))
    assert pack_runs(tmp_path / "first", tmp_path / ARCHIVE) == (3, 3)
    assert pack_runs(tmp_path / "second", tmp_path / ARCHIVE) == (5, 2)
    once = (tmp_path / ARCHIVE).read_bytes()
    assert pack_runs(tmp_path / "second", tmp_path / ARCHIVE) == (5, 0)
    assert (tmp_path / ARCHIVE).read_bytes() == once


def test_a_run_that_diverged_is_kept_with_its_reason_and_other_unfinished_ones_are_not(tmp_path: Path) -> None:
    killed = failed("The process that trained it ended with signal 9")
    for k, outcomes in enumerate(((*killed, DIVERGED), (DIVERGED, *killed), ())):
        one = random_run(np.random.default_rng(k), [0], trial=k, done=False, outcomes=outcomes)
        write(tmp_path / "runs", one)
    assert pack_runs(tmp_path / "runs", tmp_path / ARCHIVE) == (1, 1)
    frame = load(tmp_path, problems=[])
    assert frame.select("trial", "outcome", "reason").rows() == [(0, "diverged", str(DIVERGED))]


def test_the_verb_packs_and_tables_are_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    some_runs(tmp_path / "runs", range(8))
    assert main(["pack", str(tmp_path / "runs"), "-o", str(tmp_path / "study")]) == 0
    assert "holds 8 runs, 8 of them new" in capsys.readouterr().out
    assert main(["table", str(tmp_path / "runs")]) == main(["table", str(tmp_path / "study")]) == 0
    printed = capsys.readouterr().out
    assert printed[: len(printed) // 2] == printed[len(printed) // 2 :]
    assert tables(load(tmp_path / "study", problems=[]))


def hostile(kind: str) -> bytes:
    """An archive with one good file and one that must not be unpacked."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        good = tarfile.TarInfo(f"{'0' * 16}/done")
        tar.addfile(good, io.BytesIO())
        bad = tarfile.TarInfo({"outside": f"{'0' * 16}/../../x", "model": f"{'0' * 16}/model.pt"}.get(kind, ""))
        if kind == "link":
            bad = tarfile.TarInfo(f"{'1' * 16}/done")
            bad.type, bad.linkname = tarfile.SYMTYPE, "somewhere"
        if kind == "hidden":
            bad = tarfile.TarInfo("sweeps/.x.json")
        tar.addfile(bad)
    return lzma.compress(buffer.getvalue())


@pytest.mark.parametrize("kind", ["outside", "model", "link", "hidden"])
def test_an_archive_with_anything_else_in_it_is_refused(kind: str, tmp_path: Path) -> None:
    (tmp_path / ARCHIVE).write_bytes(hostile(kind))
    with pytest.raises(InputError, match="not a file of a run"):
        load(tmp_path)


@pytest.mark.parametrize("data", [b"", b"no archive", lzma.compress(b"x" * 5000)])
def test_a_file_that_is_not_an_archive_is_refused(data: bytes, tmp_path: Path) -> None:
    (tmp_path / ARCHIVE).write_bytes(data)
    with pytest.raises(InputError, match="is not an archive of runs"):
        load(tmp_path)


def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    some_runs(tmp_path / "runs", range(2))
    pack_runs(tmp_path / "runs", tmp_path / ARCHIVE)
    whole = (tmp_path / ARCHIVE).read_bytes()
    random = np.random.default_rng(0)
    for place in random.integers(0, len(whole), 40).tolist():
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(random.integers(8))
        folder = tmp_path / str(place)
        folder.mkdir(exist_ok=True)
        (folder / ARCHIVE).write_bytes(bytes(damaged))
        with pytest.raises(InputError, match="is not an archive of runs"):
            load(folder)


def test_a_folder_without_complete_runs_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, random_run(np.random.default_rng(0), [0], done=False))
    assert main(["pack", str(tmp_path), "-o", str(tmp_path / "study")]) == 2
    assert "has no complete run" in capsys.readouterr().err
    assert not (tmp_path / "study" / ARCHIVE).exists()
