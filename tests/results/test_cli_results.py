"""``genie-dg table``, ``compare`` and ``import`` as a person types them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from genie_dg.cli import main as command

from .build import record, run, write
from .test_domainbed import arguments, folder
from .test_render import GENIE, cells, one, two_by_two


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


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--select", "orcale"],
            "got selection='orcale'; expected training-domain, leave-one-domain-out or oracle",
        ),
        (["--format", "text"], "got format='text'; expected md, tex or csv"),
        (["nowhere"], "nowhere cannot be read"),
    ],
)
def test_mistakes_are_one_sentence(
    runs: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert command.main(["table", str(runs), *words]) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert shown.count("\n") == 1


def test_no_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["table", str(tmp_path)]) == 2
    assert "There are no runs in" in capsys.readouterr().err


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


def test_a_comparison_on_the_screen(compared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["compare", str(compared)]) == 0
    text = capsys.readouterr().out
    assert cells(text, "digits")[:4] == ["digits", GENIE, "ERM + adam", "+15.00"]
    assert command.main(["compare", str(compared), "--rows", "erm + adam", "--baseline", GENIE]) == 0
    assert cells(capsys.readouterr().out, "digits")[1:4] == ["ERM + adam", GENIE, "-15.00"]
    assert command.main(["compare", str(compared), "--format", "csv", "--resamples", "20", "--seed", "3"]) == 0
    assert capsys.readouterr().out.startswith("table,data,row,baseline,name,value\n")


def test_notes_of_a_comparison_go_to_stderr(compared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    next(compared.glob("*/done")).unlink()
    write(compared, one(0.9, "sgd", 7))
    assert command.main(["compare", str(compared), "--resamples", "20"]) == 0
    shown = capsys.readouterr()
    assert "Note: 1 of 9 runs are left out: not complete" in shown.err
    assert "Note: ERM + sgd and ERM + adam share no split and are not compared." in shown.err
    assert "are left out: not complete" not in shown.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--baseline", "ERM + genei"],
            "no row 'ERM + genei'; the choice is ERM + adam, ERM + genie; did you mean",
        ),
        (["--rows", "ERM + adam"], "There is one row, 'ERM + adam'"),
        (["--resamples", "0"], "Argument --resamples: got '0'; expected a whole number of at least 1;"),
        (["--seed", "-1"], "Argument --seed: got '-1'; expected a whole number of at least 0;"),
        (["nowhere"], "nowhere cannot be read"),
    ],
)
def test_mistakes_of_a_comparison_are_one_sentence(
    compared: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert command.main(["compare", str(compared), *words]) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert shown.count("\n") == 1


def test_protocols_are_compared_when_asked_for(compared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(compared, one(0.5, "sgd", protocol="domainbed"))
    assert command.main(["compare", str(compared)]) == 2
    assert "protocols custom and domainbed" in capsys.readouterr().err
    assert command.main(["compare", str(compared), "--mix-protocols", "--resamples", "20"]) == 0
    assert "ERM + sgd" in capsys.readouterr().out


def test_no_torch_is_loaded() -> None:
    code = (
        "import sys, importlib\n"
        "for name in ('frame', 'select', 'tables', 'compare', 'stats', 'render', 'domainbed'):\n"
        "    importlib.import_module('genie_dg.results.' + name)\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=120).returncode == 0
