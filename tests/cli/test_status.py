"""``genie-dg status`` on folders in whatever state: it looks, says what it left out, and disturbs nothing."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from genie_dg.cli.main import main
from genie_dg.files import append_line, write_json, write_whole
from genie_dg.runs.config import RunConfig, canonical
from genie_dg.runs.outcome import OUTCOMES, Ending, Outcome, note_outcome
from genie_dg.runs.record import Record
from genie_dg.runs.sweep_list import write_list

CONFIG = RunConfig("digits", (5,), optimizer="adam", backbone="mlp", steps=10, checkpoint_every=5)
CONFIGS = [replace(CONFIG, trial_seed=k) for k in range(5)]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A run that is done, one that failed, one that was stopped, and two that are missing."""
    out = tmp_path / "runs"
    write_list(out, "mine", CONFIGS)
    for k, config in enumerate(CONFIGS[:3]):
        folder = out / config.run_id
        folder.mkdir()
        append_line(folder / "timings.jsonl", {"step": 4, "seconds": 2.0})
        if k == 0:
            append_line(folder / "timings.jsonl", {"step": 9, "seconds": 2.0})
            write_whole(folder / "done", b"")
        elif k == 1:
            note_outcome(folder, Outcome(Ending.failed, "the disk is \x1b[31mred\x1b[0m\nfull"))
        else:
            write_whole(folder / "checkpoint.pt", b"")
    return out


def test_a_folder_with_odd_files_and_bad_lines_is_told_in_sentences(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_json(runs / "sweeps" / "odd.json", {"name": "odd"})
    (runs / "sweeps" / "notes.txt").write_text("hello")
    done, failed, stopped = (runs / config.run_id for config in CONFIGS[:3])
    with (done / "timings.jsonl").open("ab") as file:
        file.write(b'[]\n{"step": "x", "seconds": 3}\n{"step": 7, "seconds": -1e9}\n\xff\n')
        file.write(b'{"step": 10000000, "seconds": 1}\n')
    with (failed / OUTCOMES).open("ab") as file:
        file.write(b"torn")
    (stopped / "timings.jsonl").unlink()
    (stopped / "timings.jsonl").mkdir()
    (runs / CONFIGS[3].run_id).write_text("a file in place of a folder")
    assert main(["status", str(runs)]) == 0
    out, errors = capsys.readouterr()
    assert out.splitlines()[0] == (
        "mine: 5 runs: 1 done, 1 failed, 1 stopped, 2 missing; about 14 seconds left with 1 at a time, "
        "from the timings of 2 runs"
    )
    assert out.splitlines()[1].endswith(", 5 of 10 steps: the disk is \\x1b[31mred\\x1b[0m full")
    assert "\x1b" not in out
    first, second = errors.splitlines()
    assert re.fullmatch(r"genie-dg: .*odd\.json is not a list of runs \('runs'\); it is left out: .*", first)
    assert re.fullmatch(r"genie-dg: Line 3 of .*timings\.jsonl .*it is left out and 3 more like it\.", second)


def test_all_lists_every_run_that_is_not_done(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", str(runs), "--all"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["failed", "stopped", "missing", "missing"]


def test_no_name_from_a_folder_steers_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Names of a domain, of a data set and of a sweep with escapes, as they may come with somebody's runs."""
    config = replace(CONFIG, dataset="di\x1b[2Jgits", steps=1)
    folder = tmp_path / config.run_id
    folder.mkdir()
    write_json(folder / "meta.json", {"domains": [f"\x1b]0;{k}\x07" for k in range(6)]})
    write_whole(folder / "config.json", canonical(config).encode())
    record = Record(0, 0.0, None, 1.0, (0.5,) * 6, (0.5,) * 6)
    append_line(folder / "records.jsonl", record.to_json())
    append_line(folder / "records.jsonl", {"step": "\x1b[31m"})
    write_whole(folder / "done", b"")
    write_list(tmp_path, "mine", [config, CONFIG])
    listed = json.loads((tmp_path / "sweeps" / "mine.json").read_text())
    del listed["digest"]
    write_json(tmp_path / "sweeps" / "mine.json", {**listed, "name": "mi\x1b[1mne"})
    page = str(tmp_path / "page.html")
    for words in (
        ["status", "--all"],
        ["table"],
        ["compare"],
        ["report", "-o", page],
        ["table", "--select", "x\x1b"],
    ):
        main([words[0], str(tmp_path), *words[1:]])
        shown = "".join(capsys.readouterr())
        assert "\\x1b" in shown or words[0] in ("compare", "report"), words
        assert not set(shown) & {"\x1b", "\x07"}, words
