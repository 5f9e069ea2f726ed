"""``done`` seals a run: what was changed or lost since is left out of tables, in a sentence that names it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from genie_dg.files import FileError
from genie_dg.results.frame import load
from genie_dg.runs.config import RunConfig
from genie_dg.runs.folder import AVERAGE, begin, cut_records
from genie_dg.runs.record import Record
from genie_dg.runs.seal import check_seal, digest, seal, seal_text, sealed_files

CONFIG = RunConfig("digits", (0,), swad=True)


def finished(out: Path, config: RunConfig = CONFIG) -> Path:
    """A complete run of two records."""
    folder = out / config.run_id
    folder.mkdir(parents=True)
    begin(folder, config, {"domains": ["a", "b"]})
    records = [Record(step, 0.5, None, 0.25, (0.5, 0.25), (0.75, step / 100)) for step in (0, 10)]
    cut_records(folder, records)
    (folder / AVERAGE).write_text(json.dumps(records[1].to_json()))
    for name in ("lock", "checkpoint.pt", "outcomes.jsonl", "model-0.pt", "model.pt", "notes.txt"):
        (folder / name).write_text(name)
    seal(folder)
    return folder


def test_a_seal_names_what_stays(tmp_path: Path) -> None:
    folder = finished(tmp_path)
    sealed = sealed_files((folder / "done").read_bytes())
    assert sorted(sealed) == [
        *("config.json", "meta.json", "model-0.pt", "model.pt", "records.jsonl", "swad.json")
    ]
    assert sealed["model.pt"] == digest(b"model.pt")
    check_seal(folder)


def replaced(name: str, old: str, new: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text((folder / name).read_text().replace(old, new))


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (replaced("records.jsonl", "0.75", "0.76"), "/records.jsonl was changed after the run was finished"),
        (lambda f: (f / "records.jsonl").unlink(), "/records.jsonl is missing"),
        (
            lambda f: (f / "records.jsonl").write_bytes((f / "records.jsonl").read_bytes().splitlines()[0]),
            "/records.jsonl was changed after the run was finished",
        ),
        (replaced("config.json", '"steps":1000', '"steps":1001'), "/config.json was changed"),
        (replaced("done", "records", "recordz"), "/done cannot be read (it has no digest of records.jsonl)"),
        (lambda f: (f / "done").write_text("{"), "/done cannot be read ("),
    ],
)
def test_what_was_changed_is_left_out(damage: Callable[[Path], object], sentence: str, tmp_path: Path) -> None:
    folder, other = finished(tmp_path), finished(tmp_path, RunConfig("digits", (1,)))
    damage(folder)
    problems: list[str] = []
    assert load(tmp_path, problems=problems)["run"].to_list() == [other.name]
    assert len(problems) == 1
    assert problems[0].startswith(f"{folder}{sentence}")
    assert problems[0].endswith("; the run is left out.")
    with pytest.raises(FileError, match="remove its folder and run it again"):
        check_seal(folder)


def test_an_average_that_was_changed_is_not_used(tmp_path: Path) -> None:
    folder = finished(tmp_path)
    replaced("swad.json", "0.75", "0.76")(folder)
    problems: list[str] = []
    frame = load(tmp_path, problems=problems)
    assert frame["averaged"].to_list() == [False]
    assert [problem.rpartition("; ")[2] for problem in problems] == ["the run is not used."]


def test_a_folder_holds_the_run_it_is_named_after(tmp_path: Path) -> None:
    folder = finished(tmp_path)
    shutil.copytree(folder, tmp_path / "copies" / "0123456789abcdef")
    shutil.copytree(folder, tmp_path / "renamed" / "my best run")
    problems: list[str] = []
    assert len(load(tmp_path / "copies", problems=problems)) == 0
    assert f"/0123456789abcdef holds the run {CONFIG.run_id}, not the one it is named after" in problems[0]
    assert len(load(tmp_path / "renamed")) == 1
    (tmp_path / "copies" / "0123456789abcdef" / "done").write_bytes(b"")
    assert len(load(tmp_path / "copies")) == 1


def test_an_empty_mark_is_that_of_a_run_from_before(tmp_path: Path) -> None:
    folder = finished(tmp_path)
    (folder / "done").write_bytes(b"")
    replaced("records.jsonl", "0.75", "0.76")(folder)
    assert load(tmp_path)["done"].to_list() == [True]
    check_seal(folder)


def test_only_seals_are_seals() -> None:
    whole = dict.fromkeys(("config.json", "meta.json", "records.jsonl"), "ab")
    assert sealed_files(seal_text(whole)) == whole
    for text in (b"{}", b"[]", b'{"files": [1]}', b'{"files": {"config.json": 3}}', b"\xff", b"["):
        with pytest.raises(ValueError, match=r"."):
            sealed_files(text)
