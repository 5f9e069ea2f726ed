"""The paths that a job names, for processes elsewhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from genie_dg.bench.engines._paths import paths_of, with_whole_paths

from genie_dg.bench.options import Job, RunOptions
from genie_dg.runs.config import RunConfig

BASE = RunConfig("digits", (5,))


def test_paths_are_whole_and_names_of_sets_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "digits").mkdir()
    job = Job(BASE, "mine", RunOptions(root="data", weights="w.pth", plugin=("p.py",)))
    whole = with_whole_paths(job)
    assert whole.data == str(tmp_path / "mine")
    assert whole.options == RunOptions(
        out=str(tmp_path / "runs"),
        root=str(tmp_path / "data"),
        weights=str(tmp_path / "w.pth"),
        plugin=(str(tmp_path / "p.py"),),
    )
    assert with_whole_paths(replace(job, data="digits")).data == "digits"
    assert with_whole_paths(replace(job, data="/on/the/nodes")).data == "/on/the/nodes"


def test_all_that_a_job_reads_and_writes_is_listed() -> None:
    options = RunOptions(out="/runs", root="/data", cache="/cache", plugin=("/p.py",))
    job = Job(BASE, "/pictures", options)
    assert paths_of(job) == [Path(p) for p in ("/runs", "/data", "/cache", "/p.py", "/pictures")]
    assert paths_of(Job(BASE, "digits", RunOptions(out="/runs"))) == [Path("/runs")]
