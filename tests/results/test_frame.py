"""Runs as one frame: what is there comes back, what is broken loses nothing else, and the index is true."""

from __future__ import annotations

import functools
import json
import math
import operator
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genie_dg.check import InputError
from genie_dg.results import frame as frame_module
from genie_dg.results.frame import COLUMNS, load, records, with_rows
from genie_dg.results.index import INDEX, read_index
from genie_dg.runs.config import canonical
from genie_dg.runs.record import record_from

from .build import DIVERGED, PACS, Run, config, failed, frame_of, lines, record, run, same_frames, write

GOOD = record(0, [0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8])
LATER = record(100, [0.2, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 1.0])


def loaded(*folders: Path) -> tuple[pl.DataFrame, list[str]]:
    problems: list[str] = []
    return load(*folders, problems=problems), problems


def only(frame: pl.DataFrame) -> dict[str, Any]:
    assert len(frame) == 1
    return frame.row(0, named=True)


def test_a_run_comes_back_as_it_was(tmp_path: Path) -> None:
    one = run([1], [GOOD, {**LATER, "loss": None}], trial=2, draw=3, steps=7)
    folder = write(tmp_path, one)
    frame, problems = loaded(tmp_path)
    row = only(frame)
    assert problems == []
    assert frame.schema == pl.Schema({name: dtype for name, (dtype, _) in COLUMNS.items()})
    assert math.isnan(row["loss"].pop())
    assert {name: getattr(row["config"], name) for name in one.config.__dict__} == one.config.__dict__
    del row["config"]
    assert row.pop("written") == int((folder / "done").stat().st_mtime)
    assert row == {
        "run": one.run_id,
        "folder": str(folder),
        "done": True,
        "outcome": "finished",
        "reason": "",
        "dataset": "PACS",
        "domains": list(PACS),
        "algorithm": "ERM",
        "optimizer": "adam",
        "backbone": "resnet50",
        "protocol": "domainbed",
        "oracle": "last",
        "test_domains": [1],
        "trial": 2,
        "draw": 3,
        "steps": 7,
        "swad": False,
        "averaged": False,
        "versions": [{"name": "torch", "value": "2"}],
        "command": [],
        "sweeps": [],
        "step": [0, 100],
        "epoch": [0.0, 10.0],
        "loss": [1.0],
        "validation_loss": [0.5, 0.5],
        "in_acc": [0.1, 0.2, 0.3, 0.4, 0.2, 0.2, 0.3, 0.4],
        "out_acc": [0.5, 0.6, 0.7, 0.8, 0.5, 0.6, 0.7, 1.0],
        "validation": [(0.5 + 0.7 + 0.8) / 3, (0.5 + 0.7 + 1.0) / 3],
        "test": [0.2, 0.2],
        "test_validation": [0.6, 0.6],
        "timed_step": [],
        "seconds": [],
        "watch": [],
        "row": "ERM + adam",
    }


def test_the_average_of_swad_is_the_last_record(tmp_path: Path) -> None:
    average = record(50, [0.9] * 4, [0.25] * 4)
    write(tmp_path, run([0], [GOOD, LATER], swad=True, averaged=average))
    row = only(loaded(tmp_path)[0])
    assert (row["algorithm"], row["swad"], row["averaged"]) == ("ERM+SWAD", True, True)
    assert (row["step"], row["test"]) == ([0, 100, 50], [0.1, 0.2, 0.9])
    assert records(load(tmp_path))["averaged"].to_list() == [False, False, True]


def test_the_last_attempt_says_how_a_run_ended(tmp_path: Path) -> None:
    some = failed("it rained", "it snowed")
    for trial, outcomes in enumerate(((), some, (*some, DIVERGED), (DIVERGED, *some))):
        write(tmp_path, run([1], [GOOD], trial, done=False, outcomes=outcomes))
    write(tmp_path, run([1], [GOOD], 4, outcomes=some))  # and done since
    frame, problems = loaded(tmp_path)
    assert problems == []
    assert frame.sort("trial").select("done", "outcome", "reason").rows() == [
        (False, None, ""),
        (False, "failed", "it snowed"),
        (False, "diverged", "NotFinite: The loss of step 9 is nan."),
        (False, "failed", "it snowed"),
        (True, "finished", ""),
    ]


def test_times_watch_and_launch_are_read_once(tmp_path: Path) -> None:
    """Nobody opens the folder of a run after it."""
    one = run([1], [GOOD, LATER])
    folder = write(tmp_path, one)
    (folder / "timings.jsonl").write_text(lines([{"step": 0, "seconds": 1}, {"step": 9, "seconds": 2.5}]))
    watch = [{"step": 0, "gsnr": 0.5, "heat": [1, 2.5], "note": "x"}, {"step": 0, "gsnr": 0.75}, {"x": 4}]
    (folder / "watch.jsonl").write_text(lines(watch) + '{"step": 7, "to')
    (folder / "launch.json").write_text('{"command": ["train", "digits"]}')
    (tmp_path / "sweeps").mkdir()
    for name, text in {"a.json": "{}", "a.toml": 'name = "a"', "a.protocol.toml": "steps = 3"}.items():
        (tmp_path / "sweeps" / name).write_text(text)
    frame, problems = loaded(tmp_path)
    shutil.rmtree(tmp_path)
    row = only(frame)
    assert problems == []
    assert (row["timed_step"], row["seconds"]) == ([0, 9], [1.0, 2.5])
    assert row["watch"] == [{"step": 0, "name": "gsnr", "values": [0.75]}]  # the step was done twice
    assert row["command"] == ["train", "digits"]
    assert row["sweeps"] == [{"name": "a", "toml": 'name = "a"', "protocol": "steps = 3"}]


BROKEN = {
    "not JSON": "{",
    "cut": json.dumps(LATER)[:40],
    "a list": "[1]",
    "NaN": json.dumps({**LATER, "in_acc": [float("nan"), 0, 0, 0]}),
    "NaN loss": json.dumps({**LATER, "loss": float("nan")}),
    "infinite loss": json.dumps({**LATER, "loss": float("inf")}),
    "loss true": json.dumps({**LATER, "loss": True}),
    "too large": json.dumps({**LATER, "out_acc": [0, 0, 0, 1.5]}),
    "negative": json.dumps({**LATER, "out_acc": [0, 0, 0, -0.5]}),
    "text": json.dumps({**LATER, "out_acc": ["0.5", 0, 0, 0.5]}),
    "null": json.dumps({**LATER, "out_acc": [None, 0, 0, 0.5]}),
    "too few": json.dumps({**LATER, "in_acc": [0.5]}),
    "moved": json.dumps({**LATER, "in_acc": [0.5] * 3, "out_acc": [0.5] * 5}),
    "no in_acc": json.dumps({"step": 100, "out_acc": [0.5] * 4}),
    "step text": json.dumps({**LATER, "step": "100"}),
    "step 100.0": json.dumps({**LATER, "step": 100.0}),
    "half a step": json.dumps({**LATER, "step": 100.5}),
    "same step": json.dumps({**LATER, "step": 0}),
    "negative step": json.dumps({**LATER, "step": -1}),
    "huge step": json.dumps({**LATER, "step": 10**30}),
    "step beyond floats": json.dumps({**LATER, "step": 10**400}),
    "huge loss": json.dumps({**LATER, "loss": 10**400}),
    "deep": "[" * 100_000,
    "deep inside": json.dumps({**LATER, "x": 0}).replace('"x": 0', '"x": ' + "[" * 100_000),
    "bytes": "\udcff\udcfe",
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_record_loses_only_itself(tmp_path: Path, kind: str) -> None:
    folder = write(tmp_path, run([0], []))
    text = [json.dumps(GOOD), BROKEN[kind], json.dumps({**LATER, "step": 200})]
    (folder / "records.jsonl").write_bytes("\n".join(text).encode("utf-8", "surrogateescape"))
    frame, problems = loaded(tmp_path)
    assert only(frame)["step"] == [0, 200]
    assert len(problems) == 1
    assert problems[0].startswith(f"Line 2 of {folder}/records.jsonl is not a record (")
    assert problems[0].endswith("); it is left out.")
    assert len(problems[0]) < 400


def changed(old: str, new: str) -> str:
    text = canonical(config([0]))
    assert old in text
    return text.replace(old, new)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "config.json"),
        ("[]", "Expected `object`"),
        ("{}", "missing required field"),
        (changed('"algorithm":"ERM"', '"algorithm":7'), "$.algorithm"),
        (changed('"trial_seed":0', '"trial_seed":"0"'), "$.trial_seed"),
        (changed('"trial_seed":0', f'"trial_seed":{10**30}'), "got trial_seed="),
        (changed('"test_domains":[0]', '"test_domains":["0"]'), "$.test_domains"),
        (changed('"test_domains":[0]', '"test_domains":[-1]'), "test_domains"),
        (changed('"test_domains":[0]', '"test_domains":[]'), "test_domains"),
        (changed('"swad":false', '"swad":1'), "$.swad"),
        (changed('"dropout":0.0', '"dropout":"x"'), "$.dropout"),
        (changed('"dropout":0.0', '"dropout":2.0'), "got dropout=2.0"),
        (changed('"precision":"float32"', '"precision":"float8"'), "got precision='float8'"),
        (changed('"steps":1000', '"steps":0'), "got steps=0"),
        (changed('"batch_size":32', '"batch_size":0'), "got batch_size=0"),
        (changed('"dropout"', '"drop"'), "drop"),
        (canonical(config([9])), "has 4 domains but test domains [9]"),
        (changed('"algorithm_settings":{}', '"algorithm_settings":' + '{"a":' * 100_000), "recursion"),
    ],
)
def test_a_broken_configuration_leaves_the_other_runs(tmp_path: Path, text: str, why: str) -> None:
    broken = write(tmp_path, run([1], [GOOD]))
    write(tmp_path, run([2], [GOOD]))
    (broken / "config.json").write_text(text)
    frame, problems = loaded(tmp_path)
    assert frame["test_domains"].to_list() == [[2]]
    assert len(problems) == 1
    assert why in problems[0]
    assert str(broken) in problems[0]
    assert problems[0].endswith("the run is left out.")


def test_a_missing_or_broken_swad_file_is_reported(tmp_path: Path) -> None:
    folder = write(tmp_path, run([0], [GOOD], swad=True))
    frame, problems = loaded(tmp_path)
    assert (only(frame)["swad"], only(frame)["averaged"], only(frame)["step"]) == (True, False, [0])
    assert "swad.json is not a record" in problems[0]
    for text in ("{}", "[", json.dumps({**GOOD, "in_acc": [0.5]})):
        (folder / "swad.json").write_text(text)
        frame, problems = loaded(tmp_path)
        assert "swad.json is not a record" in problems[0]
        assert not only(frame)["averaged"]


def test_broken_files_beside_the_records_are_reported(tmp_path: Path) -> None:
    folder = write(tmp_path, run([0], [GOOD], done=False, outcomes=failed("first")))
    with (folder / "outcomes.jsonl").open("a") as file:
        file.write('nothing\n{"ending": "lost"}\n')
    (folder / "launch.json").write_text('{"command": "train"}')
    frame, problems = loaded(tmp_path)
    assert (only(frame)["outcome"], only(frame)["reason"], only(frame)["command"]) == ("failed", "first", [])
    assert ["outcomes.jsonl" in problem for problem in problems] == [True, True]


def test_other_folders(tmp_path: Path) -> None:
    for name in ("cache", "old", "bare"):
        (tmp_path / name).mkdir()
    (tmp_path / "file.txt").write_text("x")
    (tmp_path / "old" / "results.jsonl").write_text("")
    (tmp_path / "bare" / "records.jsonl").write_text("")
    frame, problems = loaded(tmp_path)
    assert len(frame) == len(records(frame)) == 0
    assert sorted("import" in problem for problem in problems) == [False, True]
    with pytest.raises(InputError, match=r"cannot be read .*; name a folder that holds the folders of runs\.$"):
        load(tmp_path / "nowhere")
    with pytest.raises(InputError, match="cannot be read"):
        load(tmp_path / "file.txt")


def test_several_folders_one_run_and_copies(tmp_path: Path) -> None:
    half, whole = run([0], [GOOD], done=False), run([0], [GOOD, LATER])
    other = run([1], [GOOD])
    one = write(tmp_path / "a", half)
    write(tmp_path / "b", whole)
    write(tmp_path / "b", other)
    assert len(load(one)) == 1
    for folders in (("a", "b"), ("b", "a"), ("a", "b", "b", "a")):
        frame, problems = loaded(*(tmp_path / name for name in folders))
        assert sorted(frame["run"]) == sorted([half.run_id, other.run_id])
        assert frame.filter(run=half.run_id).select("done", pl.col("step").list.len()).rows() == [(True, 2)]
        assert all("hold the same run; it counts once." in problem for problem in problems)
    first = tmp_path / "a" / half.run_id
    tied, _ = loaded(tmp_path / "a", first)
    assert tied["folder"].to_list() == [str(first)]


def test_rows_are_named_by_what_tells_them_apart() -> None:
    first, other = run([0], [GOOD], protocol="x"), run([0], [GOOD], protocol="y")
    deep = run([0], [GOOD], protocol="y", optimizer="genie", backbone="cnn")

    def names(*runs: Run) -> list[str]:
        return sorted(frame_of(runs)["row"])

    assert names(first) == ["ERM + adam"]
    assert names(first, other) == ["ERM + adam (x)", "ERM + adam (y)"]
    assert names(first, deep) == ["ERM + adam (resnet50)", "ERM + genie (cnn)"]
    assert names(first, other, deep) == [
        "ERM + adam (resnet50, x)",
        "ERM + adam (resnet50, y)",
        "ERM + genie (cnn)",
    ]
    part = frame_of([first, deep]).filter(optimizer="genie")
    assert with_rows(part)["row"].to_list() == ["ERM + genie"]


# The tidy form


def test_records_have_a_row_each() -> None:
    small = run([0], [record(0, [0.1, 0.2], [0.3, 0.4]), record(5, [0.5, 0.6], [0.7, 0.8])], domains=("a", "b"))
    large, empty = run([1, 2], [GOOD], trial=1), run([3], [], trial=2)
    tidy = records(frame_of([small, large, empty])).sort("trial", "step")
    assert tidy.columns == list(COLUMNS)
    assert tidy["run"].to_list() == [small.run_id, small.run_id, large.run_id]
    assert tidy["step"].to_list() == [0, 5, 0]
    assert tidy["epoch"].to_list() == [0.0, 0.5, 0.0]
    assert tidy["in_acc"].to_list() == [[0.1, 0.2], [0.5, 0.6], GOOD["in_acc"]]
    assert tidy["out_acc"].to_list() == [[0.3, 0.4], [0.7, 0.8], GOOD["out_acc"]]
    assert tidy["validation"].to_list() == [0.4, 0.8, (0.5 + 0.8) / 2]
    assert tidy["test"].to_list() == [0.1, 0.5, (0.2 + 0.3) / 2]
    assert tidy["domains"].to_list() == [["a", "b"], ["a", "b"], list(PACS)]


@st.composite
def _runs(draw: st.DrawFn) -> list[Run]:
    """Runs of two to five domains, with test domains up to all of them, in any order of sizes."""
    accuracy = st.floats(0, 1)
    runs = []
    for trial in range(draw(st.integers(1, 4))):
        count = draw(st.integers(2, 5))
        test = draw(st.sets(st.integers(0, count - 1), min_size=1))
        part = st.lists(accuracy, min_size=count, max_size=count)
        listed = [record(7 * k, draw(part), draw(part)) for k in range(draw(st.integers(0, 4)))]
        runs.append(run(sorted(test), listed, trial, domains=tuple("abcde"[:count])))
    return runs


def _mean(values: list[float]) -> float:
    return functools.reduce(operator.add, values) / len(values)


@given(_runs())
@settings(max_examples=60, deadline=None)
def test_the_means_are_those_of_the_records(runs: list[Run]) -> None:
    frame = frame_of(runs)
    for one in runs:
        row = only(frame.filter(run=one.run_id))
        test, count = one.config.test_domains, len(one.domains)
        typed = [record_from(line, count) for line in one.records]
        assert row["test"] == [_mean([r.in_acc[k] for k in test]) for r in typed]
        assert row["test"] == pytest.approx([r.test(test) for r in typed], abs=1e-15)
        assert row["test_validation"] == [_mean([r.out_acc[k] for k in test]) for r in typed]
        sources = [k for k in range(count) if k not in test]
        if sources:
            assert row["validation"] == [_mean([r.out_acc[k] for k in sources]) for r in typed]
            assert row["validation"] == pytest.approx([r.validation(test) for r in typed], abs=1e-15)
        else:
            assert all(map(math.isnan, row["validation"]))
    tidy = records(frame)
    for name in ("in_acc", "out_acc"):
        assert tidy[name].explode().to_list() == frame[name].explode().drop_nulls().to_list()


# The index


@pytest.fixture
def indexed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Runs of two sizes, one of them with SWAD, one unfinished, and a folder that is not a run."""
    monkeypatch.setattr(frame_module, "_INDEXED", 2)
    for trial in range(3):
        write(tmp_path, run([1], [GOOD, LATER], trial))
    write(tmp_path, run([0], [record(0, [0.1, 0.2], [0.3, 0.4])], domains=("a", "b"), dataset="two"))
    write(tmp_path, run([1], [GOOD], swad=True, averaged=LATER))
    write(tmp_path, run([1], [GOOD], 7, done=False, outcomes=failed("stopped")))
    (tmp_path / "sweeps").mkdir()
    return tmp_path


def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders that are read from now on, by name."""
    names: list[str] = []
    read_runs = frame_module.read_runs

    def watched(folders: list[str]) -> Any:
        names.extend(map(os.path.basename, folders))
        return read_runs(folders)

    monkeypatch.setattr(frame_module, "read_runs", watched)
    return names


def fresh(folder: Path) -> pl.DataFrame:
    """What a read without the index gives."""
    with tempfile.TemporaryDirectory() as copies:
        copied = shutil.copytree(folder, Path(copies) / "runs")
        (copied / INDEX).unlink(missing_ok=True)
        frame = loaded(copied)[0]
    return frame.with_columns(folder=pl.col("folder").str.replace(str(copied), str(folder), literal=True))


def test_the_second_read_is_equal_and_opens_no_file(indexed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, problems = loaded(indexed)
    assert problems == []
    stored = (indexed / INDEX).read_bytes()
    names = opened(monkeypatch)
    for folder in (indexed, f"{indexed}/"):
        assert same_frames(load(folder), first)
    assert set(names) == {"sweeps", *first.filter(~pl.col("done"))["folder"].str.split("/").list.last()}
    assert (indexed / INDEX).read_bytes() == stored
    assert same_frames(first, fresh(indexed))


def test_a_folder_of_runs_may_move(indexed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = loaded(indexed)
    moved = indexed.rename(indexed.with_name("moved"))
    names = opened(monkeypatch)
    again, _ = loaded(moved)
    assert len(names) == 2
    assert same_frames(again.drop("folder"), first.drop("folder"))
    assert all(Path(path).is_dir() for path in again["folder"])


def _append(folder: Path) -> None:
    with (folder / "records.jsonl").open("a") as file:
        file.write(lines([{**LATER, "step": 900}]))


def _replace_config(folder: Path) -> None:
    (folder / "config.json").write_text(canonical(config([1], 5, 5)))


def _replace_meta(folder: Path) -> None:
    (folder / "new").write_text(json.dumps({"domains": list("wxyz")}))
    (folder / "new").replace(folder / "meta.json")


def _unfinish(folder: Path) -> None:
    (folder / "done").unlink()


def _spoil(folder: Path) -> None:
    (folder / "records.jsonl").write_text("{\n")


def _lose_records(folder: Path) -> None:
    (folder / "records.jsonl").unlink()


CHANGES = [_append, _replace_config, _replace_meta, _unfinish, _spoil, _lose_records, shutil.rmtree]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_in_a_run_is_seen(indexed: Path, change: Any) -> None:
    before, _ = loaded(indexed)
    change(indexed / run([1], [], 1).run_id)
    after, problems = loaded(indexed)
    assert not same_frames(after, before)
    assert same_frames(after, fresh(indexed))
    again, as_before = loaded(indexed)
    assert same_frames(again, after)
    assert as_before == problems


def test_runs_are_added_and_finished(indexed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded(indexed)
    write(indexed, run([2], [GOOD], 9))
    (indexed / run([1], [], 7).run_id / "done").touch()
    names = opened(monkeypatch)
    after, _ = loaded(indexed)
    assert sorted(names) == sorted(["sweeps", run([2], [], 9).run_id, run([1], [], 7).run_id])
    assert same_frames(after, fresh(indexed))
    names.clear()
    assert same_frames(loaded(indexed)[0], after)
    assert names == ["sweeps"]


def test_what_is_broken_is_reported_every_time(indexed: Path) -> None:
    (indexed / run([1], [], 1).run_id / "meta.json").unlink()
    _spoil(indexed / run([1], [], 2).run_id)
    (indexed / "bare").mkdir()
    (indexed / "bare" / "records.jsonl").write_text("")
    first, problems = loaded(indexed)
    assert len(problems) == 3
    for _ in range(2):
        again, same = loaded(indexed)
        assert same_frames(again, first)
        assert same == problems


def test_a_damaged_index_is_ignored(indexed: Path) -> None:
    first, _ = loaded(indexed)
    stored = (indexed / INDEX).read_bytes()
    half = len(stored) // 2
    flipped = [stored[:at] + bytes([stored[at] ^ 4]) + stored[at + 1 :] for at in range(0, len(stored), 701)]
    for damaged in (b"", b"xyz", stored[:half], stored[:-1], stored + b"x", bytes(len(stored)), *flipped):
        (indexed / INDEX).write_bytes(damaged)
        assert same_frames(loaded(indexed)[0], first)
        assert (indexed / INDEX).read_bytes() == stored  # written anew


def test_an_index_of_other_columns_is_ignored(indexed: Path) -> None:
    first, _ = loaded(indexed)
    stored = (indexed / INDEX).read_bytes()
    older = pl.Schema({name: dtype for name, (dtype, _) in COLUMNS.items() if name != "oracle"})
    assert read_index(str(indexed), 6, older) is None
    assert same_frames(loaded(indexed)[0], first)
    assert (indexed / INDEX).read_bytes() == stored


def test_a_folder_that_cannot_be_written_is_read_all_the_same(indexed: Path) -> None:
    (indexed / f"{INDEX}.{os.getpid()}.part").mkdir()  # where the index would be written first
    first, problems = loaded(indexed)
    assert (len(first), problems) == (6, [])
    assert not (indexed / INDEX).exists()
    assert same_frames(loaded(indexed)[0], first)
