"""Reading runs: what is there comes back, what is broken is told and loses nothing else."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from genie_dg.results._files import quick_numbers
from genie_dg.results.schema import ResultsError, in_acc, numbers_of, out_acc
from genie_dg.results.store import load

from genie_dg.results import _files
from genie_dg.runs.record import canonical

from .build import PACS, config, record, run, write

GOOD = record(0, [0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8])
LATER = record(100, [0.2, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 1.0])


@pytest.fixture(params=["orjson", "json"], autouse=True)
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both readers of JSON; a machine without orjson runs the second twice."""
    if request.param == "json":
        monkeypatch.setattr(_files, "_orjson", None)


def test_a_run_comes_back_as_it_was(tmp_path: Path) -> None:
    made = run([1], [GOOD, {**LATER, "loss": None}], trial=2, draw=3, swad=True, averaged=LATER)
    folder = write(tmp_path, made)
    (found,), problems = load(tmp_path)
    assert problems == []
    assert (found.run_id, found.config, found.domains) == (made.run_id, made.config, PACS)
    assert (found.done, found.failures, found.folder) == (True, (), str(folder))
    assert found.records() == [GOOD, {**LATER, "loss": None}]
    assert found.averaged is not None
    assert found.averaged[0, 0] == 100
    assert found.judged is found.averaged
    assert found.in_acc.tolist() == [GOOD["in_acc"], LATER["in_acc"]]
    assert found.out_acc.tolist() == [GOOD["out_acc"], LATER["out_acc"]]
    assert found.steps.tolist() == [0, 100]
    assert np.isnan(found.losses[1])


def test_an_unfinished_run_is_not_done(tmp_path: Path) -> None:
    write(tmp_path, run([1], [GOOD], done=False, failures=["it rained"]))
    (found,), problems = load(tmp_path)
    assert (found.done, found.failures, problems) == (False, ("it rained",), [])


def test_the_collector_is_left_as_it_was(tmp_path: Path) -> None:
    before = gc.isenabled()
    try:
        for state in (gc.disable, gc.enable):
            state()
            was = gc.isenabled()
            with pytest.raises(ResultsError):
                load(tmp_path / "nowhere")
            load(tmp_path)
            assert gc.isenabled() == was
    finally:
        (gc.enable if before else gc.disable)()


BROKEN = {
    "no JSON": "{",
    "cut": json.dumps(LATER)[:40],
    "a list": "[1]",
    "NaN": json.dumps({**LATER, "in_acc": [float("nan"), 0, 0, 0]}),
    "NaN loss": json.dumps({**LATER, "loss": float("nan")}),
    "too large": json.dumps({**LATER, "out_acc": [0, 0, 0, 1.5]}),
    "negative": json.dumps({**LATER, "out_acc": [0, 0, 0, -0.5]}),
    "text": json.dumps({**LATER, "out_acc": ["0.5", 0, 0, 0.5]}),
    "null": json.dumps({**LATER, "out_acc": [None, 0, 0, 0.5]}),
    "too few": json.dumps({**LATER, "in_acc": [0.5]}),
    "moved": json.dumps({**LATER, "in_acc": [0.5] * 3, "out_acc": [0.5] * 5}),
    "no in_acc": json.dumps({"step": 100, "out_acc": [0.5] * 4}),
    "step text": json.dumps({**LATER, "step": "100"}),
    "half a step": json.dumps({**LATER, "step": 100.5}),
    "same step": json.dumps({**LATER, "step": 0}),
    "negative step": json.dumps({**LATER, "step": -1}),
    "huge loss": json.dumps({**LATER, "loss": 10**400}),
    "deep": "[" * 100_000,
    "bytes": "\udcff\udcfe",
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_record_loses_only_itself(tmp_path: Path, kind: str) -> None:
    last = {**LATER, "step": 200}
    made = run([0], [GOOD])
    folder = write(tmp_path, made)
    lines = [json.dumps(GOOD), BROKEN[kind], json.dumps(last)]
    (folder / "records.jsonl").write_bytes("\n".join(lines).encode("utf-8", "surrogateescape"))
    (found,), problems = load(tmp_path)
    assert [r["step"] for r in found.records()] == [0, 200]
    assert len(problems) == 1
    assert problems[0].startswith(f"Line 2 of {folder}/records.jsonl is no record (")


def test_records_may_lack_losses(tmp_path: Path) -> None:
    bare = {key: GOOD[key] for key in ("step", "in_acc", "out_acc")}
    write(tmp_path, run([0], []), json.dumps(bare))
    (found,), problems = load(tmp_path)
    assert (found.records(), problems) == ([{**bare, "epoch": None, "loss": None, "validation_loss": None}], [])


@pytest.mark.parametrize("seed", range(5))
def test_the_quick_way_and_the_checked_way_agree(seed: int) -> None:
    random = np.random.default_rng(seed)
    records = [
        record(int(k), random.random(3), random.random(3), loss=None if k % 2 else float(random.normal()))
        for k in np.cumsum(random.integers(1, 50, 20))
    ]
    text = "".join(json.dumps(r) + "\n" for r in records).encode()
    quick = quick_numbers(text, 3)
    assert quick is not None
    np.testing.assert_array_equal(quick, numbers_of(records, 3))
    assert in_acc(quick).shape == out_acc(quick).shape == (20, 3)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "config.json"),
        ("[]", "no object"),
        ("{}", "test_domains"),
        (canonical(config([0])).replace('"algorithm":"ERM"', '"algorithm":7'), "algorithm is no text"),
        (canonical(config([0])).replace('"trial_seed":0', '"trial_seed":"0"'), "trial_seed"),
        (canonical(config([0])).replace('"test_domains":[0]', '"test_domains":["0"]'), "test_domains"),
        (canonical(config([0])).replace('"swad":false', '"swad":1'), "swad"),
        (canonical(config([0])).replace('"dropout":0.0', '"dropout":"x"'), "config.json"),
        (canonical(config([0])).replace('"dropout"', '"drop"'), "A run has no 'drop'"),
        (canonical(config([9])), "has 4 domains but test domains"),
    ],
)
def test_a_broken_configuration_leaves_the_other_runs(tmp_path: Path, text: str, why: str) -> None:
    broken = write(tmp_path, run([1], [GOOD]))
    write(tmp_path, run([2], [GOOD]))
    (broken / "config.json").write_text(text)
    runs, problems = load(tmp_path)
    assert [r.config.test_domains for r in runs] == [(2,)]
    assert len(problems) == 1
    assert why in problems[0]
    assert str(broken) in problems[0]


def test_a_broken_meta_file_leaves_the_numbers_and_takes_names_from_others(tmp_path: Path) -> None:
    broken = write(tmp_path, run([1], [GOOD]))
    (broken / "meta.json").write_text('{"domains": [1]}')
    (found,), problems = load(tmp_path)
    assert found.domains == ("domain 0", "domain 1", "domain 2", "domain 3")
    assert "numbered" in problems[0]
    write(tmp_path, run([2], [GOOD]))
    (broken / "meta.json").unlink()
    runs, problems = load(tmp_path)
    assert {r.domains for r in runs} == {PACS}
    assert len(problems) == 1


def test_a_missing_or_broken_swad_file_is_told(tmp_path: Path) -> None:
    folder = write(tmp_path, run([0], [GOOD], swad=True))
    (found,), problems = load(tmp_path)
    assert found.judged is None
    assert "no swad.json" in problems[0]
    (folder / "swad.json").write_text("{}")
    assert "swad.json is no record" in load(tmp_path)[1][0]


def test_broken_failures_are_told(tmp_path: Path) -> None:
    folder = write(tmp_path, run([0], [GOOD], done=False, failures=["first"]))
    with (folder / "failures.jsonl").open("a") as file:
        file.write('nothing\n{"reason": "second"}\n')
    (found,), problems = load(tmp_path)
    assert found.failures == ("first", "second")
    assert "failures.jsonl" in problems[0]


def test_other_folders(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "file.txt").write_text("x")
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "results.jsonl").write_text("")
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "records.jsonl").write_text("")
    runs, problems = load(tmp_path)
    assert runs == []
    assert sorted("import" in problem for problem in problems) == [False, True]
    with pytest.raises(ResultsError, match="cannot be read"):
        load(tmp_path / "nowhere")


def test_a_directory_in_the_place_of_a_file_is_told(tmp_path: Path) -> None:
    folder = write(tmp_path, run([0], [GOOD]))
    (folder / "records.jsonl").unlink()
    (folder / "records.jsonl").mkdir()
    (found,), problems = load(tmp_path)
    assert len(found.numbers) == 0
    assert "counts as missing" in problems[0]


def test_several_folders_one_run_and_copies(tmp_path: Path) -> None:
    half = run([0], [GOOD], done=False)
    whole = run([0], [GOOD, LATER])
    one = write(tmp_path / "a", half)
    write(tmp_path / "b", whole)
    assert len(load(one)[0]) == 1
    runs, problems = load(tmp_path / "a", tmp_path / "b")
    assert [(r.done, len(r.numbers)) for r in runs] == [(True, 2)]
    assert "the same run" in problems[0]
    assert load(tmp_path / "b", tmp_path / "a")[0][0].done


def test_a_run_in_a_folder_of_another_name_keeps_its_identity(tmp_path: Path) -> None:
    made = run([0], [GOOD])
    folder = write(tmp_path, made).rename(tmp_path / "mine")
    (folder / "config.json").write_text(json.dumps(json.loads(canonical(made.config)), indent=2))
    assert load(tmp_path)[0][0].run_id == made.run_id


def test_a_large_file_is_read_whole(tmp_path: Path) -> None:
    records: list[dict[str, Any]] = [record(k, [1 / 3] * 4, [2 / 3] * 4) for k in range(1000)]
    write(tmp_path, run([0], records))
    assert (tmp_path / run([0], []).run_id / "records.jsonl").stat().st_size > 2**17
    assert len(load(tmp_path)[0][0].numbers) == 1000
