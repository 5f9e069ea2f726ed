"""The command line as a user meets it: verbs, exit codes, one sentence for each mistake."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import entry_points

import pytest

from genie_dg import __version__
from genie_dg.cli import env
from genie_dg.cli.main import VERBS, main

from .calls import call, one_sentence


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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "No verb was given"),
        (["dmeo"], "demo, diwa, env, evaluate, export, fit, import, list, lr-find, pack, predict, report, "),
        (["dmeo"], "did you mean 'demo'?"),
        (["env", "--loud"], "--loud"),
        (["demo", "--data", "pacs"], "expected styleshapes or digits"),
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


def test_a_reader_that_has_enough_is_not_an_error() -> None:
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
