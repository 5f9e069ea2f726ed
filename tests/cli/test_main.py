"""The command line as a user meets it: exit codes, sentences, and the demo from end to end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import torch

from genie_dg import __version__
from genie_dg.cli import env
from genie_dg.cli.main import VERBS, main


def call(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run ``genie-dg`` in a process of its own."""
    command = [sys.executable, "-m", "genie_dg.cli.main", *words]
    surroundings = {**os.environ, "PYTHONIOENCODING": "utf-8", **variables}
    return subprocess.run(
        command, capture_output=True, text=True, encoding="utf-8", timeout=300, env=surroundings, check=False
    )


def one_sentence(text: str) -> bool:
    return text.startswith("genie-dg: ") and text.count("\n") == 1 and text.rstrip()[-1] in ".?"


def test_the_script_is_installed() -> None:
    (script,) = entry_points(group="console_scripts", name="genie-dg")
    assert script.value == "genie_dg.cli.main:main"


def test_version() -> None:
    done = call("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"genie-dg {__version__}\n", "")


def test_help_lists_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    printed = capsys.readouterr().out
    for verb in VERBS:
        assert re.search(rf"^\s+{verb}\s", printed, re.MULTILINE)


def test_env_names_what_matters() -> None:
    done = call("env")
    assert done.returncode == 0
    assert done.stderr == ""
    lines = dict(re.split(r"\s{2,}", line, maxsplit=1) for line in done.stdout.splitlines())
    assert lines["genie-dg"] == __version__
    assert lines["torch"] == torch.__version__
    assert lines["devices"].startswith("cpu")
    assert int(lines["threads"]) >= 1
    assert "C++ compiler" in lines


def test_env_looks_for_the_compiler_named_by_cxx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert env.find_compiler() is None
    monkeypatch.setenv("CXX", sys.executable)
    assert env.find_compiler() == sys.executable


def test_unknown_verb_names_the_verbs_and_the_nearest() -> None:
    done = call("dmeo")
    assert done.returncode == 2
    assert done.stdout == ""
    assert one_sentence(done.stderr)
    assert "'dmeo'" in done.stderr
    assert "did you mean 'demo'?" in done.stderr
    assert "demo, env" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "No verb was given"),
        (["quite-different"], "demo, env"),
        (["env", "--loud"], "--loud"),
        (["demo", "--steps", "0"], "at least 1"),
        (["demo", "--trials", "two"], "'two'"),
        (["demo", "--optimizers", ","], "The list of optimizers is empty"),
        (["demo", "--optimizers", "sgd,genei"], "did you mean 'genie'?"),
    ],
)
def test_user_errors_are_one_sentence(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert one_sentence(printed.err)
    assert said in printed.err


def test_interrupt_is_one_line_and_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(arguments: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(env, "run", interrupted)
    assert main(["env"]) == 130
    assert capsys.readouterr().err.strip() == "genie-dg: stopped by Ctrl-C."


@pytest.mark.parametrize(("module", "package"), [("sklearn", "scikit-learn"), ("rich", "rich")])
def test_a_missing_package_names_its_extra(
    module: str, package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    assert main(["demo"]) == 2
    printed = capsys.readouterr().err
    assert one_sentence(printed)
    assert package in printed
    assert 'pip install "genie-dg[bench]"' in printed


def test_demo_goes_from_a_sweep_to_a_table_and_a_report(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    done = call(
        "demo", "--steps", "4", "--draws", "1", "--trials", "1", "--optimizers", "adam,genie", "--out", str(out)
    )
    assert done.returncode == 0, done.stderr
    assert "6 of 6 runs are done, 0 failed." in done.stdout
    assert re.search(r"\| ERM +\| genie ", done.stdout)
    assert "ERM + genie" in done.stdout
    assert (out / "report.html").stat().st_size > 1000
    again = call(
        "demo", "--steps", "4", "--draws", "1", "--trials", "1", "--optimizers", "adam,genie", "--out", str(out)
    )
    assert "6 done already" in again.stdout


def test_a_reader_that_has_enough_is_no_error() -> None:
    """As in ``genie-dg list | head``: no traceback, the exit code of a closed pipe."""
    code = "import sys; from genie_dg.cli.main import main; print('ready', flush=True); sys.stdin.read(1)"
    code += "; sys.exit(main())"
    command = [sys.executable, "-c", code, "list"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "ready\n"
        process.stdout.close()
        process.stdin.write("x")
        process.stdin.close()
        assert process.stderr.read() == ""
        assert process.wait(timeout=120) in (141, 1)  # 1: rich noticed first
