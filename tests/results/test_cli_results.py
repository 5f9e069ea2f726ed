"""``genie-dg table`` and ``genie-dg import`` as a person types them."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from genie_dg.cli import main as command

from .build import record, run, write
from .test_import_domainbed import arguments, folder


@pytest.fixture(autouse=True)
def verbs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "VERBS", {"table": "make tables", "import": "read DomainBed"})


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for k in range(4):
        write(tmp_path / "runs", run([k], [record(0, [0.25] * 4, [0.5] * 4)]))
    return tmp_path / "runs"


def test_the_modules_carry_the_names_of_their_verbs() -> None:
    for name in ("table", "import"):
        module = import_module(f"genie_dg.cli.{name}")
        assert callable(module.add_arguments)
        assert callable(module.run)


def test_a_table_on_the_screen_and_in_a_file(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["table", str(runs)]) == 0
    shown = capsys.readouterr()
    assert "25.0 +/- 0.0" in shown.out
    assert shown.err == ""
    target = tmp_path / "out.tex"
    assert command.main(["table", str(runs), "--select", "oracle", "--format", "tex", "-o", str(target)]) == 0
    assert capsys.readouterr().out == ""
    assert r"25.0 $\pm$ 0.0" in target.read_text()
    assert command.main(["table", str(runs), "-o", str(tmp_path)]) == 2
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--select", "orcale"], "did you mean 'oracle'"),
        (["--format", "text"], "is no format; the choice is md, tex, csv"),
        (["nowhere"], "nowhere cannot be read"),
    ],
)
def test_mistakes_are_one_sentence(
    runs: Path, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    assert command.main(["table", str(runs), *words]) == 2
    shown = capsys.readouterr().err
    assert told in shown
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
    assert "is no folder" in capsys.readouterr().err


def test_no_torch_is_loaded() -> None:
    code = (
        "import sys, importlib\n"
        "for name in ('store', 'select', 'table', 'formats', 'import_domainbed'):\n"
        "    importlib.import_module('genie_dg.results.' + name)\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=120).returncode == 0
