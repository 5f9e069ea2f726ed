"""DomainNet's duplicates: the listed files go and nothing else, and the numbers are said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from genie_dg.data.domains import DataError
from genie_dg.data.published.duplicates import EXPECTED, Removal, read_list, remove_duplicates

LISTED = ["clipart/axe/clipart_1.jpg", "clipart/bee/clipart_2.jpg", "real/axe/real_1.jpg"]
KEPT = ["clipart/axe/clipart_9.jpg", "quickdraw/axe/q_1.png", "real/axe/real_10.jpg"]


def make(folder: Path) -> tuple[Path, Path]:
    root = folder / "domain_net"
    for name in LISTED + KEPT:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    listing = folder / "list.txt"
    listing.write_text("\n".join([*LISTED, "", LISTED[0]]) + "\r\n")
    return root, listing


def files(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


def test_the_listed_files_are_removed_and_counted(tmp_path: Path) -> None:
    root, listing = make(tmp_path)
    removal = remove_duplicates(root, listing)
    assert files(root) == KEPT
    assert removal == Removal({"clipart": 2, "real": 1}, {"clipart": 2, "real": 1})
    assert removal.sentence() == (
        "3 duplicates were removed (clipart 2, real 1); the numbers differ: clipart 2 where 704 were expected, "
        "infograph 0 where 1,596 were expected, painting 0 where 3,493 were expected, "
        "real 1 where 2,380 were expected, sketch 0 where 1,258 were expected."
    )


def test_the_published_numbers_are_said_to_be_as_published() -> None:
    assert sum(EXPECTED.values()) == 9431
    sentence = Removal(EXPECTED, EXPECTED).sentence()
    assert sentence.startswith("9,431 duplicates were removed (clipart 704, infograph 1,596, painting 3,493")
    assert sentence.endswith("), as published.")
    assert "quickdraw 5 where 0" in Removal(EXPECTED, {**EXPECTED, "quickdraw": 5}).sentence()


def test_a_domain_that_is_not_there_shows_in_the_numbers(tmp_path: Path) -> None:
    root, listing = make(tmp_path)
    (root / LISTED[2]).unlink()
    assert remove_duplicates(root, listing).removed == {"clipart": 2, "real": 0}


@pytest.mark.parametrize("wrong", [".", "clipart", "nowhere"])
def test_a_wrong_folder_is_refused(tmp_path: Path, wrong: str) -> None:
    root, listing = make(tmp_path)
    folder = tmp_path if wrong == "." else root / wrong
    with pytest.raises(DataError, match="has none of the 3 files"):
        remove_duplicates(folder, listing)
    assert len(files(root)) == 6


def test_after_an_interruption_the_same_call_reports_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, listing = make(tmp_path)
    true, gone = Path.unlink, []

    def unlink(self: Path, missing_ok: bool = False) -> None:
        if gone:
            raise KeyboardInterrupt
        gone.append(self)
        true(self, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", unlink)
    with pytest.raises(KeyboardInterrupt):
        remove_duplicates(root, listing)
    monkeypatch.undo()
    assert len(files(root)) == 5
    for _ in range(2):  # the second time nothing is left to remove, and that is no wrong folder
        assert remove_duplicates(root, listing).removed == {"clipart": 2, "real": 1}
        assert files(root) == KEPT


def test_a_record_can_be_kept_elsewhere(tmp_path: Path) -> None:
    root, listing = make(tmp_path)
    remove_duplicates(root, listing, record=tmp_path / "record.json")
    assert json.loads((tmp_path / "record.json").read_text())["removed"] == {"clipart": 2, "real": 1}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["domain_net", "list.txt", "record.json"]
    (tmp_path / "record.json").write_text("{")
    with pytest.raises(DataError, match=r"record\.json cannot be read"):
        remove_duplicates(root, listing, record=tmp_path / "record.json")


@pytest.mark.parametrize(
    "line",
    [
        "../victim/x/1.jpg",
        "/victim/x/1.jpg",
        "clipart/../../victim",
        "c:/x/1.jpg",
        "clipart\\axe\\1",
        "clipart",
    ],
)
def test_a_path_that_leaves_the_folder_removes_nothing(tmp_path: Path, line: str) -> None:
    root, listing = make(tmp_path)
    listing.write_text("\n".join([*LISTED, line]))
    with pytest.raises(DataError, match=r"list\.txt"):
        remove_duplicates(root, listing)
    assert len(files(root)) == 6


def test_a_link_that_leaves_the_folder_removes_nothing(tmp_path: Path) -> None:
    root, listing = make(tmp_path)
    (root / "real").rename(tmp_path / "real")
    (root / "real").symlink_to(tmp_path / "real")
    with pytest.raises(DataError, match="is a link that leaves"):
        remove_duplicates(root, listing)
    assert len(files(tmp_path / "real")) == 2
    assert (root / LISTED[0]).exists()


def test_an_empty_or_missing_list_is_refused(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("\n")
    with pytest.raises(DataError, match="no path"):
        read_list(tmp_path / "list.txt")
    with pytest.raises(DataError, match="cannot be read"):
        read_list(tmp_path / "none.txt")
