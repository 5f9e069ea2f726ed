"""The submissions of a sweep, beside its list."""

from __future__ import annotations

from pathlib import Path

import pytest

from genie_dg.runs.submissions import (
    last_jobs,
    new_submission,
    note_made,
    note_planned,
    place_of,
    read_submissions,
)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "sweeps").mkdir()
    return tmp_path


def test_a_submission_is_known_before_and_after_its_job_has_an_id(out: Path) -> None:
    first, second = new_submission("mine", ["a", "b"]), new_submission("mine", ["b"])
    assert first.name != second.name
    assert first.name.startswith("mine-")
    for one in (first, second):
        note_planned(out, "mine", one)
    assert read_submissions(out, "mine") == [first, second]
    assert last_jobs(read_submissions(out, "mine")) == {}, "not yet made, as far as is known"
    made = note_made(out, "mine", first, "12")
    assert read_submissions(out, "mine") == [made, second]
    assert last_jobs([made, second]) == {"a": ("12_0", first.at), "b": ("12_1", first.at)}
    note_made(out, "mine", second, "15")
    assert last_jobs(read_submissions(out, "mine"))["b"] == ("15", second.at), "a single job is not an array"
    assert read_submissions(out, "other") == []


def test_lines_that_are_no_submission_are_left_out(out: Path) -> None:
    made = note_made(out, "mine", new_submission("mine", ["a"]), "12")
    assert read_submissions(out, "mine") == [], "an id without its submission"
    note_planned(out, "mine", made)
    with place_of(out, "mine").open("a") as file:
        file.write('{"submission": "x", "runs": []}\n{"submission": 3, "runs": ["a"]}\n{"runs": ["a"]}\n')
        file.write('{"submission": "x", "runs": [1]}\n{"submission": ["x"], "job": "1"}\ntorn')
    problems: list[str] = []
    assert [one.name for one in read_submissions(out, "mine", problems)] == [made.name]
    assert len(problems) == 1
    assert problems[0].startswith(f"Line 8 of {place_of(out, 'mine')} is not a JSON object")


@pytest.mark.parametrize("name", ["../mine", "a/b", "a\0b", ""])
def test_a_name_that_is_not_one_of_a_file_is_not_looked_for(name: str, out: Path) -> None:
    note_planned(out, "mine", new_submission("mine", ["a"]))
    assert read_submissions(out / "sweeps", name) == []
