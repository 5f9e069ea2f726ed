"""Which pictures a person names, and what a model of a table sees of rows."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from genie_dg.data.encoding import Encoding
from genie_dg.inference.pictures import inputs_of_rows, picture_files, thumbnail
from tests.data.pictures import write

ENCODING = Encoding(("age",), (50.0,), (10.0,), ("sex",), (("f", "m"),), "ward", "outcome")
"""Inputs are (age - 50) / 10, is f, is m."""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("b.png", "a.JPG", "deep/c.png", ".hidden/d.png", "deep/[1].png"):
        write(tmp_path / name.replace("JPG", "jpg"), 1).rename(tmp_path / name)
    (tmp_path / "notes.txt").write_text("no picture")
    return tmp_path


def names(words: list[str], tree: Path) -> list[str]:
    return [path.relative_to(tree).as_posix() for path in picture_files(words)]


def test_folders_patterns_and_files(tree: Path) -> None:
    assert names([str(tree)], tree) == ["a.JPG", "b.png", "deep/[1].png", "deep/c.png"]
    assert names([f"{tree}/*.png"], tree) == ["b.png"]
    assert names([f"{tree}/**/*.png"], tree) == ["b.png", "deep/[1].png", "deep/c.png"]
    assert names([f"{tree}/d*"], tree) == ["deep/[1].png", "deep/c.png"]
    assert names([f"{tree}/deep/[1].png"], tree) == ["deep/[1].png"]  # a file, though it looks like a pattern
    assert names([f"{tree}/b.png", str(tree)], tree)[0] == "b.png"
    assert len(names([f"{tree}/b.png", str(tree)], tree)) == 4


def test_thumbnails(tree: Path) -> None:
    assert max(thumbnail(tree / "b.png", 20).size) == 20
    assert thumbnail(tree / "b.png", 100).size == (52, 40)
    assert thumbnail(torch.zeros(1, 8, 8, dtype=torch.uint8), 64).size == (64, 64)


def test_every_row_is_named_by_file_and_number(tmp_path: Path) -> None:
    first, second = tmp_path / "a.csv", tmp_path / "b.csv"
    first.write_text("more,sex,age\nx,m,60\ny,other,\n")
    second.write_text("age,sex\n40,f\n")
    inputs = inputs_of_rows([first, second], ENCODING)
    shown = {name: row.flatten().tolist() for name, row in inputs.items()}
    assert shown == {f"{first}:1": [1, 0, 1], f"{first}:2": [0, 0, 0], f"{second}:1": [-1, 1, 0]}
