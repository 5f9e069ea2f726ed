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
from genie_dg.runs import read
from genie_dg.runs.config import canonical
from genie_dg.runs.read import Runs, read_runs, run_folders, seconds, versions, watched

from ..results.build import config, lines, record, run, write

GOOD = record(0, [0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8])


def same(one: Runs, other: Runs) -> bool:
    """All columns and sentences alike, NaN like NaN."""
    return (one.problems, one.damaged) == (other.problems, other.damaged) and from_runs(one).equals(
        from_runs(other)
    )


def carefully(folders: list[str]) -> Runs:
    """The same runs, every line looked at by itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read, "_lines", read._checked_lines)
        return read_runs(folders)


def random_runs(folder: Path, seed: int, count: int) -> list[str]:
    """Runs of several sizes, some with SWAD, some without losses, some unfinished, some empty."""
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
        patch.delattr(read, "_checked_lines")  # what is in order needs no second look
        quick = read_runs(folders)
    assert same(quick, carefully(folders))
    assert quick.problems == []
    assert len(quick.count) == 20


SPOILT: dict[str, Callable[[dict[str, Any]], Any]] = {
    "too large": lambda line: {**line, "in_acc": [0.5] * 3 + [1.1]},
    "too short": lambda line: {**line, "out_acc": [0.5] * 3},
    "moved": lambda line: {**line, "in_acc": [0.5] * 3, "out_acc": [0.5] * 5},
    "step back": lambda line: {**line, "step": 0},
    "a number": lambda line: 7,
    "text": lambda line: {**line, "loss": "x"},
    "beyond floats": lambda line: {**line, "step": 10**400},
    "without losses": lambda line: {key: line[key] for key in ("step", "in_acc", "out_acc")},
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
    assert sum(runs.count) + len(runs.problems) == 4
    assert len(runs.problems) == (kind not in ("without losses", "more"))


def test_a_line_holds_one_record(tmp_path: Path) -> None:
    later = {**GOOD, "step": 5}
    for text in (json.dumps(GOOD) + json.dumps(later), json.dumps(GOOD, indent=1)):
        path = write(
            tmp_path / str(len(text)), run([0], []), text + "\n" + json.dumps({**GOOD, "step": 9}) + "\n"
        )
        runs = read_runs([str(path)])
        assert runs.records["step"][0].tolist() == [9]
        assert same(runs, carefully([str(path)]))


_number = st.floats(allow_nan=True) | st.integers() | st.none() | st.booleans() | st.text(max_size=2)
_part = st.lists(st.floats(-0.1, 1.1) | st.integers(0, 1) | st.none(), min_size=1, max_size=3)
_object = st.fixed_dictionaries(
    {"step": st.integers(-1, 5) | st.floats(0, 5), "in_acc": _part, "out_acc": _part},
    optional={"epoch": _number, "loss": _number, "validation_loss": _number, "swad": st.booleans()},
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
    assert len(careful.problems) + careful.count[0] == sum(bool(line.strip()) for line in text)


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
    monkeypatch.setattr(read, "CHUNK", 2)
    assert same(read_runs(folders), alone)
    monkeypatch.setattr(read, "PARALLEL", 5)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    assert same(read_runs(folders), alone)
    assert alone.runs["folder"] == folders
    assert len(alone.damaged) == (3 if broken else 0)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("count", [0, 1, 4, 5, 17, 250])
def test_work_in_parallel_keeps_its_order(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(read, "CHUNK", 2)
    monkeypatch.setattr(read, "PARALLEL", 5)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    names = [str(k) for k in range(count)]
    assert read.in_parallel(_echo, names) == names


def _echo(names: list[str]) -> list[str]:
    return list(names)


def test_the_collector_is_left_as_it_was(tmp_path: Path) -> None:
    write(tmp_path, run([1], [GOOD]), "{")
    before = gc.isenabled()
    try:
        for state in (gc.disable, gc.enable):
            state()
            was = gc.isenabled()
            read_runs(run_folders(str(tmp_path)))
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(read, "_bytes", _no_memory)
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
    assert read_runs([str(path)]).count == [1000]


@pytest.mark.parametrize("size", [0, 1, 2**16 - 1, 2**16, 2**16 + 1, 2**17])
def test_files_of_any_size_are_read_whole(tmp_path: Path, size: int) -> None:
    (tmp_path / "a").write_bytes(bytes(range(256)) * (size // 256) + b"x" * (size % 256))
    problems: list[str] = []
    assert read._bytes(str(tmp_path / "a"), problems) == (tmp_path / "a").read_bytes()
    assert problems == []


def test_a_file_that_is_too_large_counts_as_missing(tmp_path: Path) -> None:
    path = write(tmp_path, run([0], [GOOD]))
    os.truncate(path / "records.jsonl", 2**26 + 1)
    runs = read_runs([str(path)])
    assert (runs.count, len(runs.problems)) == ([0], 1)
    assert "records.jsonl cannot be read (it has more than 64 MB); it counts as missing." in runs.problems[0]


def test_a_file_that_cannot_be_opened_counts_as_missing(tmp_path: Path) -> None:
    path = write(tmp_path, run([0], [GOOD]))
    (path / "records.jsonl").unlink()
    (path / "records.jsonl").symlink_to(path / "records.jsonl")
    runs = read_runs([str(path)])
    assert (runs.count, len(runs.problems)) == ([0], 1)
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


def test_a_path_inside_a_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_text("{")
    path = write(tmp_path / "runs", run([0], [GOOD], dataset="../secret.json", weights_digest="/etc/passwd"))
    assert read_runs([str(path)]).problems == []


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
    assert (runs.count, runs.damaged) == ([], [str(path)])
    assert f"{path} has no domains but test domains [0]; the run is left out." in runs.problems


def test_the_fields_of_a_configuration_are_those_of_a_run() -> None:
    text = canonical(config([1], oracle="best", algorithm_settings={"a": [1, None]}))
    decoded = read._config.decode(text)
    for name, value in json.loads(text).items():
        assert getattr(decoded, name) == (tuple(value) if name == "test_domains" else value)


def test_what_was_watched_counts_once_for_each_step(tmp_path: Path) -> None:
    assert watched(str(tmp_path)) == []
    text = lines([{"step": 0, "x": 1}, {"step": 5, "x": 2}, {"step": 5, "x": 3}, {"step": "6"}, {"x": 4}])
    (tmp_path / "watch.jsonl").write_text(text + '{"step": 7, "to')
    assert watched(str(tmp_path)) == [{"step": 0, "x": 1}, {"step": 5, "x": 3}]


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


def test_versions_are_what_meta_says_besides_domains(tmp_path: Path) -> None:
    one, two, three = (write(tmp_path, run([0], [], trial)) for trial in range(3))
    (two / "meta.json").write_text("[")
    (three / "meta.json").unlink()
    assert list(versions(map(str, (one, two, three)))) == [{"torch": "2"}]


def test_reasons_are_short() -> None:
    assert read.reason(KeyError("domains")) == "it has no 'domains'"
    assert read.reason(InputError("got x.")) == "got x"
    assert read.reason(RecursionError()) == "RecursionError"
    assert len(read.reason(ValueError("x" * 1000))) == 160
