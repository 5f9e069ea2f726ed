"""Reading many run folders: the quick way, the careful way and the way on all cores give the same columns."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from genie_dg.check import InputError
from genie_dg.results.frame import from_runs
from genie_dg.runs import read
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


def test_a_file_that_is_too_large_counts_as_missing(tmp_path: Path) -> None:
    path = write(tmp_path, run([0], [GOOD]))
    os.truncate(path / "records.jsonl", 2**26 + 1)
    runs = read_runs([str(path)])
    assert (counts(runs), len(runs.problems)) == ([0], 1)
    assert "records.jsonl cannot be read (it has more than 64 MB); it counts as missing." in runs.problems[0]


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
