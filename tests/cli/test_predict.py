"""``genie-dg predict`` as a person types it, and what the verbs of models say about mistakes."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

import genie_dg
from genie_dg.cli.main import main
from tests.data.pictures import write
from tests.inference.conftest import PictureRun

from .calls import one_sentence


def test_pictures_get_classes_and_a_broken_one_a_sentence(
    picture_run: PictureRun, mixed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = picture_run.folder / "model-4.pt"
    assert main(["predict", str(file), str(mixed), "--csv", "--top", "2"]) == 1
    printed = capsys.readouterr()
    assert one_sentence(printed.err)
    assert "broken.jpg cannot be decoded" in printed.err
    rows = list(csv.DictReader(io.StringIO(printed.out)))
    paths = sorted(path for path in mixed.iterdir() if path.name != "broken.jpg")
    assert [row["picture"] for row in rows[::2]] == [str(path) for path in paths]
    model = genie_dg.load_model(file)
    expected = model.predict(paths)
    assert [float(row["probability"]) for row in rows[::2]] == [one.probability for one in expected]
    assert [row["class"] for row in rows[::2]] == [one.label for one in expected]


def test_text_and_json(picture_run: PictureRun, mixed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["predict", str(picture_run.folder), str(mixed / "a.jpg"), str(mixed / "[b-c].*")]
    assert main([*words, "--json", "--top", "1"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [Path(line["picture"]).name for line in lines] == ["a.jpg", "b.png", "c.jpg"]
    assert [len(line["classes"]) for line in lines] == [1, 1, 1]
    assert main(words) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith(f"{mixed / 'a.jpg'}  {lines[0]['classes'][0]['class']} ")
    assert first.endswith(" %")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["predict", "{run}", "{empty}"], "There is no picture in"),
        (["predict", "{run}", "x.png", "--top", "0"], "--top: got"),
        (["predict", "{empty}", "{picture}"], "holds no run"),
        (["predict", "{picture}", "{picture}"], "cannot be read"),
        (["predict", "{run}", "{picture}", "--device", "tpu"], "'tpu' cannot be used"),
        (["evaluate", "{run}", "no-such-set"], "'no-such-set'"),
        (["evaluate", "{run}", "digits", "--as-table"], "needs the data of the run"),
        (["export", "{run}", "--to", "onxx"], "did you mean 'onnx'?"),
        (["serve", "{run}", "--port", "70000"], "--port: got"),
        (["best", "{empty}"], "There are no runs in"),
        (["best", "{out}", "--select", "orakle"], "did you mean 'oracle'?"),
    ],
)
def test_mistakes_are_one_sentence(
    words: list[str], said: str, picture_run: PictureRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    names = {"run": picture_run.folder, "out": picture_run.out, "empty": tmp_path / "empty"}
    names["picture"] = write(tmp_path / "a.png", 1)
    assert main([word.format(**names) for word in words]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert one_sentence(printed.err)
    assert said in printed.err
