"""Completion scripts are made from the parsers and work in the shells."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from genie_dg.cli.completion import names, verbs
from genie_dg.cli.main import VERBS, build_parser, main


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scripts")


def completed(script: Path, *words: str) -> list[str]:
    """What bash offers after some words."""
    typed = " ".join(f"'{word}'" for word in ("genie-dg", *words))
    code = (
        f'source {script}; COMP_WORDS=({typed}); COMP_CWORD={len(words)}; _genie_dg; echo "${{COMPREPLY[@]}}"'
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
    assert completed(script, "sweep", "--engine", "") == ["local", "ray", "slurm", "here"]
    assert completed(script, "data", "ver") == ["verify"]
    assert completed(script, "data", "verify", "--qu") == ["--quick"]
    assert completed(script, "data", "verify", "PAC") == ["PACS"]
    assert completed(script, "list", "opt") == ["optimizers"]


def test_every_option_is_offered(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "fish"]) == 0
    fish = capsys.readouterr().out
    assert main(["completion", "zsh"]) == 0
    assert capsys.readouterr().out.startswith("autoload -U +X bashcompinit")
    for verb in verbs(build_parser(), names()):
        for option in verb.options:
            if option.startswith("--"):
                assert f" -l {option[2:]} " in fish
        assert all(f" -a {word}" in fish for word in verb.follow if word.isalnum())


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bsh"]) == 2
    assert "did you mean 'bash'?" in capsys.readouterr().err
