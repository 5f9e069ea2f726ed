"""Copies of data and plugins for nodes, and the temporary folders of a node."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import pytest
from genie_dg.bench.engines._ray_copies import (
    Copy,
    is_here,
    packed,
    remove_left_folders,
    size_of,
    temporary_folder,
)

from genie_dg.files import holder_file
from genie_dg.runs.seal import digest


def a_folder(place: Path) -> Path:
    """Two pictures' worth of bytes, one of them behind a link to another folder."""
    (place / "elsewhere").mkdir(parents=True)
    (place / "elsewhere" / "b.png").write_bytes(b"bb")
    (place / "set" / "photo").mkdir(parents=True)
    (place / "set" / "photo" / "a.png").write_bytes(b"aaa")
    (place / "set" / "sketch").symlink_to(place / "elsewhere")
    return place / "set"


def test_a_folder_is_packed_under_its_name_and_links_are_followed(tmp_path: Path) -> None:
    folder = a_folder(tmp_path)
    with tarfile.open(fileobj=io.BytesIO(packed(folder))) as archive:
        archive.extractall(tmp_path / "there", filter="data")
    copied = {path.name: path.read_bytes() for path in (tmp_path / "there" / "set").rglob("*.png")}
    assert copied == {"a.png": b"aaa", "b.png": b"bb"}
    assert not (tmp_path / "there" / "set" / "sketch").is_symlink()


def test_sizes_are_counted_until_they_are_too_large(tmp_path: Path) -> None:
    folder = a_folder(tmp_path)
    assert size_of(folder) == 5
    assert size_of(folder / "photo" / "a.png") == 3
    with (folder / "photo" / "big").open("wb") as file:
        file.truncate(200 * 10**6)  # takes no room
    assert size_of(folder) > 100 * 10**6


def test_a_file_of_other_contents_is_not_what_is_meant(tmp_path: Path) -> None:
    path = tmp_path / "rows.py"
    copies = {str(path): Copy("", digest(b"new"), [])}
    assert not is_here(str(path), copies)
    path.write_bytes(b"old")
    assert not is_here(str(path), copies)
    assert is_here(str(path), {})
    path.write_bytes(b"new")
    assert is_here(str(path), copies)


def test_only_folders_of_this_users_dead_processes_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    with temporary_folder() as mine:
        text = holder_file(Path(mine) / "lock").read_text()
        for name, change in [("dead", {"pid": dead.pid}), ("elsewhere", {"host": "node7"}), ("used", {})]:
            place = tmp_path / f"genie-dg-{name}"
            (place / "run").mkdir(parents=True)
            (place / "lock").touch()
            holder_file(place / "lock").write_text(json.dumps({**json.loads(text), **change}))
        (tmp_path / "genie-dg-odd").mkdir()
        (tmp_path / "genie-dg-file").touch()
        remove_left_folders()
        kept = {Path(mine).name, *(f"genie-dg-{name}" for name in ("elsewhere", "used", "odd", "file"))}
        assert {path.name for path in tmp_path.iterdir()} == kept
    assert not Path(mine).exists()
