"""``genie-dg best`` and ``evaluate`` as a person types them."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import pytest

from genie_dg.cli.main import main
from tests.data.pictures import write
from tests.inference.conftest import PictureRun


def test_best_then_evaluate_gives_the_number_of_the_table(
    picture_run: PictureRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["best", str(picture_run.out), "--json"]) == 0
    (best,) = json.loads(capsys.readouterr().out)
    assert main(["table", str(picture_run.out), "--format", "csv"]) == 0
    table = {row["column"]: row for row in csv.DictReader(io.StringIO(capsys.readouterr().out))}
    page = tmp_path / "page.html"
    words = ["evaluate", best["file"], str(picture_run.root), "--as-table", "--json", "--page", str(page)]
    assert main(words) == 0
    printed = capsys.readouterr()
    numbers = json.loads(printed.out)
    assert repr(numbers["accuracy"]) == table["pen"]["accuracy"] == repr(best["test"]["pen"])
    assert f"{page}; open it" in printed.err
    assert page.read_text().count("data:image/jpeg") == min(24, round(10 * (1 - numbers["accuracy"])))
    assert main(["best", str(picture_run.out), "--select", "oracle"]) == 0
    assert picture_run.config.run_id in capsys.readouterr().out


def test_evaluate_tells_of_broken_pictures_and_unknown_classes(
    picture_run: PictureRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(picture_run.root / "pen", tmp_path / "pen")
    write(tmp_path / "pen" / "emu" / "a.png", 1)
    (tmp_path / "pen" / "cat" / "000.png").write_bytes(b"")
    assert main(["evaluate", str(picture_run.folder), str(tmp_path / "pen")]) == 1
    printed = capsys.readouterr()
    assert "Note: The model does not know emu; 1 pictures are left out." in printed.err
    assert "000.png is empty (0 bytes)" in printed.err
    assert "of 11 are right" in printed.out
    assert "| cat " in printed.out
