"""``genie-dg env``: versions, devices, the compiler."""

from __future__ import annotations

import re
import sys

import pytest
import torch

from genie_dg import __version__
from genie_dg.cli import env

from .calls import call


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
