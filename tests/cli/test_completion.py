"""Completion scripts are made from the parsers and work in the shells."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from genie_dg.cli.main import VERBS, build_parser, main

from .test_bad_calls import leaves


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scripts")


def completed(script: Path, *words: str) -> list[str]:
    """What bash offers after some words."""
    typed = " ".join(f"'{word}'" for word in ("genie-dg", *words))
    code = (
        f"source {script}; COMP_WORDS=({typed}); COMP_CWORD={len(words)}; "
        f"_shtab_genie_dg genie-dg '{words[-1]}' '{words[-2] if len(words) > 1 else 'genie-dg'}'; "
        'echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_verbs_options_and_names(scripts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    script = scripts / "genie-dg.bash"
    script.write_text(capsys.readouterr().out)
    assert completed(script, "tr") == ["train"]
    assert set(completed(script, "")) >= set(VERBS)
    assert completed(script, "train", "--opt") == ["--optimizer"]
    assert completed(script, "train", "digits", "--optimizer", "ge") == ["genie"]
    assert completed(script, "train", "digits", "--schedule", "") == ["cosine", "linear"]
    assert completed(script, "sweep", "--keep", "l") == ["last"]
    assert completed(script, "data", "ver") == ["verify"]
    assert completed(script, "data", "verify", "--qu") == ["--quick"]
    assert completed(script, "list", "opt") == ["optimizers"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_every_long_option_is_offered(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    options = {
        option.lstrip("-")
        for _, parser in leaves(build_parser())
        for action in parser._actions
        for option in action.option_strings
    }
    assert [option for option in options if option not in script] == []
