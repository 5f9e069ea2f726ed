"""Listing folders and lists: torchvision's order, gaps, strays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from torchvision.datasets import ImageFolder

from genie_dg.data.domains import DataError, TensorDomain
from genie_dg.data.image_folders import DataWarning, open_folder, open_list
from genie_dg.data.registry import SETS, open_data, row_of
from tests.data.pictures import folder, write


def test_order_is_image_folders(tmp_path: Path) -> None:
    root = folder(tmp_path / "set")
    for name in ("B.JPG", "a.png", "Z 1.jpeg", "é.webp"):
        write(root / "ink" / "cat" / name, 5)
    write(root / "ink" / "dog" / "deep" / "er" / "x.png", 6)
    write(root / "ink" / "dog" / "deep.png", 7)
    found = open_folder(root)
    for domain in found.domains:
        twin = ImageFolder(str(root / domain.name))
        assert [str(domain.where(i)) for i in range(len(domain))] == [path for path, _ in twin.samples]
        assert domain.labels.tolist() == twin.targets
        assert list(found.classes) == twin.classes
    assert [d.name for d in found.domains] == ["ink", "oil"]


def test_hidden_and_macos_folders_are_passed_over(tmp_path: Path) -> None:
    root = folder(tmp_path / "set")
    write(root / "ink" / ".ipynb_checkpoints" / "a.png", 1)
    write(root / "__MACOSX" / "cat" / "a.png", 1)
    (root / "ink" / "cat" / "notes.txt").write_text("no picture")
    found = open_folder(root)
    assert found.classes == ("cat", "dog")
    assert [len(d) for d in found.domains] == [8, 8]


def test_a_class_that_one_domain_lacks_keeps_its_number(tmp_path: Path) -> None:
    root = folder(tmp_path / "set", classes=("ant", "bee", "cow"))
    for file in (root / "oil" / "bee").iterdir():
        file.unlink()
    with pytest.warns(DataWarning, match=r"oil of .* has no sample of bee; the class keeps its number"):
        found = open_folder(root)
    assert set(found.domains[1].labels.tolist()) == {0, 2}


def test_one_domain_only_is_said(tmp_path: Path) -> None:
    with pytest.warns(DataWarning, match="holds one domain only, 'ink'"):
        assert len(open_folder(folder(tmp_path / "set", domains=("ink",))).domains) == 1


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda root: root.mkdir(), "holds no folder"),
        (
            lambda root: (folder(root), [f.unlink() for f in (root / "oil").rglob("*.png")]),
            "oil holds no picture",
        ),
        (lambda root: root.write_text("x"), "is not a readable folder"),
        (lambda root: None, "is not a readable folder"),
    ],
)
def test_folders_that_are_none(tmp_path: Path, make: Any, sentence: str) -> None:
    make(tmp_path / "my set ü")
    with pytest.raises(DataError, match=sentence) as caught:
        open_folder(tmp_path / "my set ü")
    assert "my set ü" in str(caught.value)
    assert str(caught.value).endswith(".")


ROWS = [("a 1.png", "dog", "oil"), ("b.png", "cat", "ink"), ("c.png", "dog", "ink")]


@pytest.mark.parametrize("kind", ["csv", "json", "jsonl"])
def test_lists(tmp_path: Path, kind: str) -> None:
    rows = [dict(zip(("path", "label", "domain"), row, strict=True)) for row in ROWS]
    path = tmp_path / f"my.{kind}"
    if kind == "csv":
        path.write_text(
            "label,path,domain,extra\n" + "".join(f"{r['label']},{r['path']},{r['domain']},x\n" for r in rows)
        )
    else:
        path.write_text(json.dumps(rows) if kind == "json" else "\n".join(map(json.dumps, rows)))
    found = open_data(path)
    assert (found.name, found.classes) == ("my", ("cat", "dog"))
    assert [(d.name, list(d.paths), d.labels.tolist()) for d in found.domains] == [  # type: ignore[attr-defined]
        ("ink", ["b.png", "c.png"], [0, 1]),
        ("oil", ["a 1.png"], [1]),
    ]
    write(tmp_path / "a 1.png", 3)
    assert found.domains[1].read(0).size == (52, 40)  # type: ignore[union-attr]


def test_numeric_labels_are_in_order_of_value(tmp_path: Path) -> None:
    path = tmp_path / "list.csv"
    path.write_text("path,label,domain\n" + "".join(f"{i}.png,{i},d\n" for i in (10, 9, 2)))
    assert open_list(path).classes == ("2", "9", "10")


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("a.csv", "path,label\nx.png,1\n", "Entry 1 of .* lacks path, label or domain"),
        ("a.csv", "path,label,domain\n", "lists no picture"),
        ("a.json", '[{"path": 1', "is not JSON"),
        ("a.json", "[3]", "Entry 1 of"),
    ],
)
def test_bad_lists(tmp_path: Path, name: str, text: str, sentence: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=sentence):
        open_list(tmp_path / name)


def test_a_broken_picture_is_named(tmp_path: Path) -> None:
    root = folder(tmp_path / "set")
    (root / "ink" / "cat" / "000.png").write_bytes(b"")
    (root / "ink" / "cat" / "001.png").write_bytes(b"not a picture")
    (root / "ink" / "cat" / "002.png").write_bytes((root / "ink" / "cat" / "003.png").read_bytes()[:200])
    domain = open_folder(root).domains[0]
    for index, sentence in enumerate(
        ["000.png is empty", "001.png cannot be decoded", "002.png cannot be decoded"]
    ):
        with pytest.raises(DataError, match=sentence):
            domain.read(index)
    (root / "ink" / "cat" / "003.png").unlink()
    with pytest.raises(DataError, match=r"003.png is missing"):
        domain.read(3)


@pytest.mark.parametrize("name", [name for name, row in SETS.items() if row.kind == "embedded"])
def test_a_row_says_what_is_opened(name: str) -> None:
    row, data = SETS[name], open_data(name)
    assert data.name == (row.set_name or row.name)
    assert row_of(data.name) is row
    assert tuple(domain.name for domain in data.domains) == row.domain_names
    assert row.small_images is (
        data.domains[0].read(0).shape[-1] < 224
    )  # Debug224 alone has the size of pictures
    assert all(isinstance(domain, TensorDomain) for domain in data.domains)
    assert row_of("my_pictures") is None


def test_open_data_by_name(tmp_path: Path) -> None:
    assert {row.kind for row in SETS.values()} == {"embedded", "published", "files"}
    for name in ("digits", "coloured-digits", "styleshapes"):
        assert len(open_data(name).domains) >= 3
    with pytest.raises(DataError, match="no folder was given"):
        open_data("PACS")
    with pytest.raises(DataError, match=r"did you mean 'VLCS'\?"):
        open_data("VLC")
    root = folder(tmp_path / "PACS", domains=("art_painting", "cartoon", "photo", "sketch"))
    assert open_data("pacs", tmp_path).variant == ""  # two classes: not the published one
    assert open_data(root).name == "PACS"
