"""``genie-dg env``: versions, devices, the compiler."""

from __future__ import annotations

import re
import sys

import pytest
import torch

from genie_dg import __version__
from genie_dg.cli.main import main


@pytest.mark.parametrize(("compiler", "shown"), [(sys.executable, sys.executable), ("none", "none found: ")])
def test_env_names_what_matters(
    compiler: str, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CXX", compiler)
    assert main(["env"]) == 0
    lines = dict(re.split(r"\s{2,}", line, maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert (lines["genie-dg"], lines["torch"]) == (__version__, torch.__version__)
    assert lines["devices"].startswith("cpu")
    assert int(lines["threads"]) >= 1
    assert lines["C++ compiler"].startswith(shown)
