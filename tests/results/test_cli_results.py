"""``genie-dg table``, ``compare`` and ``import`` as a person types them."""

from __future__ import annotations

from pathlib import Path

import pytest

from genie_dg.cli import main as command

from .build import record, run, write
from .test_domainbed import arguments, folder
from .test_render import one, two_by_two


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for k in range(4):
        write(tmp_path / "runs", run([k], [record(0, [0.25] * 4, [0.5] * 4)]))
    return tmp_path / "runs"


def test_a_table_on_the_screen_and_in_a_file(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["table", str(runs)]) == 0
    shown = capsys.readouterr()
    assert "25.0" in shown.out
    assert "+/-" not in shown.out  # one trial
    assert shown.err == ""
    target = tmp_path / "out.tex"
    assert command.main(["table", str(runs), "--select", "oracle", "--format", "tex", "-o", str(target)]) == 0
    assert capsys.readouterr().out == ""
    assert r"& 25.0 &" in target.read_text()
    assert command.main(["table", str(runs), "-o", str(tmp_path)]) == 2
    assert "which is a folder; name a file" in capsys.readouterr().err


def test_problems_go_to_stderr_and_protocols_are_not_mixed(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(runs, run([0], [], protocol="custom"), "{")
    assert command.main(["table", str(runs)]) == 2
    assert "protocols custom and domainbed" in capsys.readouterr().err
    assert command.main(["table", str(runs), "--mix-protocols"]) == 0
    shown = capsys.readouterr()
    assert "Line 1 of" in shown.err
    assert "1 of 1 runs without records" in shown.out.lower()


def test_import_then_table_with_own_runs(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for k in range(4):
        folder(tmp_path / "db", str(k), arguments([k], algorithm="IRM"), [0.5])
    with (tmp_path / "db" / "0" / "results.jsonl").open("a") as file:
        file.write("{\n")
    out = tmp_path / "imported"
    assert command.main(["import", str(tmp_path / "db"), "--out", str(out)]) == 0
    shown = capsys.readouterr()
    assert shown.out == f"4 runs imported into {out}, 0 were there already.\n"
    assert "Line 2 of" in shown.err
    assert command.main(["table", str(runs), str(out)]) == 0
    table = capsys.readouterr().out
    assert "| ERM " in table
    assert "| IRM " in table
    assert command.main(["import", str(tmp_path / "nowhere")]) == 2
    assert "is not a folder" in capsys.readouterr().err


@pytest.fixture
def compared(tmp_path: Path) -> Path:
    for each in two_by_two():
        write(tmp_path / "compared", each)
    return tmp_path / "compared"


def test_notes_of_a_comparison_go_to_stderr(compared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    next(compared.glob("*/done")).unlink()
    write(compared, one(0.9, "sgd", 7))
    assert command.main(["compare", str(compared), "--resamples", "20"]) == 0
    shown = capsys.readouterr()
    assert "Note: 1 of 9 runs are left out: not complete" in shown.err
    assert "Note: ERM + sgd and ERM + adam share no split and are not compared." in shown.err
    assert "are left out: not complete" not in shown.out
