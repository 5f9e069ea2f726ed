"""Reading many run folders: the quick way, the careful way and the way on all cores give the same columns."""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genie_dg.check import InputError
from genie_dg.results.frame import from_runs
from genie_dg.runs import decode, read
from genie_dg.runs.decode import RunFolder
from genie_dg.runs.read import RunColumns, read_runs, run_folders, seconds

from ..results.build import lines, record, run, same_frames, write

GOOD = record(0, [0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8])


def same(one: RunColumns, other: RunColumns) -> bool:
    """All columns and sentences alike, NaN like NaN."""
    said = (one.problems, one.damaged) == (other.problems, other.damaged)
    return said and same_frames(from_runs(one), from_runs(other))


def counts(columns: RunColumns) -> list[int]:
    """How many records each run has."""
    return columns.lengths["step"]


def carefully(folders: list[str]) -> RunColumns:
    """The same runs, every line looked at by itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunFolder, "_records", RunFolder._checked_records)
        return read_runs(folders)


def random_runs(folder: Path, seed: int, count: int) -> list[str]:
    """RunColumns of several sizes, some with SWAD, some without losses, some unfinished, some empty."""
    random = np.random.default_rng(seed)
    for trial in range(count):
        domains = int(random.integers(2, 6))
        some = [
            record(
                int(step),
                random.random(domains),
                random.random(domains),
                loss=None if random.random() < 0.3 else float(random.normal()),
            )
            for step in np.cumsum(random.integers(1, 50, random.integers(0, 9)))
        ]
        average = record(5, random.random(domains), random.random(domains)) if random.random() < 0.3 else None
        one = run(
            [int(random.integers(domains))],
            some,
            trial,
            domains=[f"d{k}" for k in range(domains)],
            done=bool(random.random() < 0.8),
            swad=average is not None,
            averaged=average,
        )
        write(folder, one)
    return run_folders(str(folder))


@pytest.mark.parametrize("seed", range(6))
def test_the_quick_way_and_the_careful_way_agree(tmp_path: Path, seed: int) -> None:
    folders = random_runs(tmp_path, seed, 20)
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(RunFolder, "_checked_records")  # what is in order needs no second look
        quick = read_runs(folders)
    assert same(quick, carefully(folders))
    assert quick.problems == []
    assert len(counts(quick)) == 20


SPOILT: dict[str, Callable[[dict[str, Any]], Any]] = {
    "too large": lambda line: {**line, "in_acc": [0.5] * 3 + [1.1]},
    "too short": lambda line: {**line, "out_acc": [0.5] * 3},
    "moved": lambda line: {**line, "in_acc": [0.5] * 3, "out_acc": [0.5] * 5},
    "step back": lambda line: {**line, "step": 0},
    "a number": lambda line: 7,
    "text": lambda line: {**line, "loss": "x"},
    "beyond floats": lambda line: {**line, "step": 10**400},
    "more": lambda line: {**line, "note": {"a": [1]}},
}


@pytest.mark.parametrize("kind", SPOILT)
def test_what_is_not_in_order_is_read_carefully(tmp_path: Path, kind: str) -> None:
    later = record(10, [0.5] * 4, [0.5] * 4)
    write(tmp_path, run([0], []), lines([GOOD, SPOILT[kind](later), {**later, "step": 20}]))
    write(tmp_path, run([1], [GOOD]))
    folders = run_folders(str(tmp_path))
    runs = read_runs(folders)
    assert same(runs, carefully(folders))
    assert sum(counts(runs)) + len(runs.problems) == 4
    assert len(runs.problems) == (kind != "more")


def test_a_line_holds_one_record(tmp_path: Path) -> None:
    later = {**GOOD, "step": 5}
    for text in (json.dumps(GOOD) + json.dumps(later), json.dumps(GOOD, indent=1)):
        path = write(
            tmp_path / str(len(text)), run([0], []), text + "\n" + json.dumps({**GOOD, "step": 9}) + "\n"
        )
        runs = read_runs([str(path)])
        assert runs.lists["step"][0].tolist() == [9]
        assert same(runs, carefully([str(path)]))


_number = st.floats(allow_nan=True) | st.integers() | st.none() | st.booleans() | st.text(max_size=2)
_part = st.lists(st.floats(-0.1, 1.1) | st.integers(0, 1) | st.none(), min_size=1, max_size=3)
_object = st.fixed_dictionaries(
    {
        "step": st.integers(-1, 5) | st.floats(0, 5),
        "epoch": _number,
        "loss": _number,
        "validation_loss": _number,
        "in_acc": _part,
        "out_acc": _part,
    },
    optional={"swad": st.booleans()},
)
_line = _object.map(json.dumps) | st.sampled_from(["", " ", "{", "[]", "null", "1", "{}"])


@given(st.lists(_line, max_size=5))
@settings(max_examples=150, deadline=None)
def test_any_lines_are_read_alike(tmp_path_factory: pytest.TempPathFactory, text: list[str]) -> None:
    folder = tmp_path_factory.mktemp("any")
    write(folder, run([0], [], domains=("a", "b")), "\n".join(text))
    folders = run_folders(str(folder))
    careful = carefully(folders)
    assert same(read_runs(folders), careful)
    assert len(careful.problems) + counts(careful)[0] == sum(bool(line.strip()) for line in text)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("broken", [False, True])
def test_all_cores_read_the_same_in_the_same_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: bool
) -> None:
    folders = random_runs(tmp_path, 9, 23)
    if broken:
        for path in folders[3::7]:
            Path(path, "records.jsonl").write_text("{\n")
    alone = read_runs(folders)
    monkeypatch.setattr(read, "_CHUNK", 2)
    assert same(read_runs(folders), alone)
    monkeypatch.setattr(read, "_PARALLEL", 5)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    assert same(read_runs(folders), alone)
    assert alone.runs["folder"] == folders
    assert len(alone.damaged) == (3 if broken else 0)


def test_the_collector_is_left_as_it_was(tmp_path: Path) -> None:
    write(tmp_path, run([1], [GOOD]), "{")
    before = gc.isenabled()
    try:
        for state in (gc.disable, gc.enable):
            state()
            was = gc.isenabled()
            read_runs(run_folders(str(tmp_path)))
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(decode, "read_whole", _no_memory)
                with pytest.raises(MemoryError):
                    read_runs(run_folders(str(tmp_path)))
            assert gc.isenabled() == was
    finally:
        (gc.enable if before else gc.disable)()


def _no_memory(*_: object) -> bytes:
    raise MemoryError


def test_a_large_file_is_read_whole(tmp_path: Path) -> None:
    path = write(tmp_path, run([0], [record(k, [1 / 3] * 4, [2 / 3] * 4) for k in range(1000)]))
    assert (path / "records.jsonl").stat().st_size > 2**17
    assert counts(read_runs([str(path)])) == [1000]


def test_a_file_that_is_too_large_counts_as_missing(tmp_path: Path) -> None:
    path = write(tmp_path, run([0], [GOOD]))
    os.truncate(path / "records.jsonl", 2**26 + 1)
    runs = read_runs([str(path)])
    assert (counts(runs), len(runs.problems)) == ([0], 1)
    assert "records.jsonl cannot be read (it has more than 64 MB); it counts as missing." in runs.problems[0]


def test_a_file_that_cannot_be_opened_counts_as_missing(tmp_path: Path) -> None:
    path = write(tmp_path, run([0], [GOOD]))
    (path / "records.jsonl").unlink()
    (path / "records.jsonl").symlink_to(path / "records.jsonl")
    runs = read_runs([str(path)])
    assert (counts(runs), len(runs.problems)) == ([0], 1)
    assert "cannot be read (Too many levels of symbolic links); it counts as missing." in runs.problems[0]


def test_run_folders(tmp_path: Path) -> None:
    for name in ("b", "a", "c"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").touch()
    assert run_folders(str(tmp_path)) == [f"{tmp_path}/{name}" for name in "abc"]
    (tmp_path / "a" / "config.json").touch()
    assert run_folders(f"{tmp_path}/a") == [f"{tmp_path}/a"]
    with pytest.raises(
        InputError, match=r"nowhere cannot be read \(No such file or directory\); name a folder"
    ):
        run_folders(f"{tmp_path}/nowhere")


def test_meta_files_are_read_again_when_they_differ(tmp_path: Path) -> None:
    one, two = (write(tmp_path, run([0], [GOOD], trial)) for trial in (0, 1))
    (two / "meta.json").write_text(json.dumps({"domains": list("wxyz")}))
    assert read_runs([str(one), str(two)]).runs["domains"][1] == tuple("wxyz")
    (two / "meta.json").write_text(json.dumps({"domains": list("abcd")}))
    assert read_runs([str(two)]).runs["domains"] == [tuple("abcd")]


def test_domains_are_numbered_by_the_first_whole_record(tmp_path: Path) -> None:
    path = write(tmp_path, run([0], []), "{\n" + lines([GOOD]))
    (path / "meta.json").unlink()
    assert read_runs([str(path)]).runs["domains"] == [("domain 0", "domain 1", "domain 2", "domain 3")]
    (path / "records.jsonl").unlink()
    runs = read_runs([str(path)])
    assert (counts(runs), runs.damaged) == ([], [str(path)])
    assert f"{path} has no domains but test domains [0]; the run is left out." in runs.problems


def test_seconds_by_step(tmp_path: Path) -> None:
    assert seconds(str(tmp_path)) == {}
    text = lines(
        [{"step": 0, "seconds": 1}, {"step": 5, "seconds": 2.5}, {"step": 5, "seconds": 4.0}, {"step": 6}]
    )
    (tmp_path / "timings.jsonl").write_text(text)
    assert seconds(str(tmp_path)) == {0: 1.0, 5: 4.0}
    broken = [("7", 1), (None, 1), (-1, 1), (True, 1), (8, "1"), (8, None), (8, float("nan")), ([1], 1)]
    with (tmp_path / "timings.jsonl").open("a") as file:
        file.write(lines([{"step": step, "seconds": spent} for step, spent in broken]))
    assert seconds(str(tmp_path)) == {0: 1.0, 5: 4.0}
