"""What the guide to models shows is run, and so is the example."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

import genie_dg
from genie_dg.inference.model import Model
from tests.data.pictures import write

from .conftest import PictureRun

ROOT = Path(__file__).parent.parent.parent


def test_the_guide_runs(
    picture_run: PictureRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "runs").symlink_to(picture_run.out)
    write(tmp_path / "new" / "a.jpg", 1)
    write(tmp_path / "new" / "b.png", 2)
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "predict.md").read_text(), flags=re.S)
    assert len(block.splitlines()) <= 10
    space: dict[str, object] = {}
    exec(compile(block, "predict.md", "exec"), space)
    assert isinstance(space["model"], Model)
    assert picture_run.config.run_id in capsys.readouterr().out


def test_the_example_serves_a_model(picture_run: PictureRun, tmp_path: Path) -> None:
    file, picture = picture_run.folder / "model-4.pt", write(tmp_path / "a.jpg", 1)
    command = [sys.executable, str(ROOT / "examples" / "web_service.py"), str(file), "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            with urllib.request.urlopen(address, picture.read_bytes(), timeout=60) as answer:
                said = json.load(answer)
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(address, b"no picture", timeout=60)
            assert refused.value.code == 422
            refused.value.close()
        finally:
            process.terminate()
    (expected,) = genie_dg.load_model(file).predict(picture)
    assert said == pytest.approx(dict(expected.top(5)), abs=1e-6)
