"""A whole download from a real local server: every set, every stage interrupted, nothing fetched twice."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from genie_dg.data.domains import DataError
from genie_dg.data.published.catalog import PUBLISHED, PublishedSet
from genie_dg.data.published.download import DamagedArchive, download, find_complete, remove_listed, unpack
from genie_dg.data.published.fetch import FetchError
from genie_dg.files import Busy

from .test_fetch import wait_until
from .web_server import Web, running

Files = dict[str, bytes]
DUPLICATES = PUBLISHED["DomainNet"].duplicates
(TERRA_2021,) = PUBLISHED["TerraIncognita"].files[1].by_hand


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr("pooch.core.time.sleep", lambda seconds: None)  # between two attempts
    with running() as server:
        yield server


def zipped(files: Files) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def tarred(files: Files) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def pictures(name: str) -> Files:
    """A miniature of a set: two pictures of two classes in each domain."""
    domains = PUBLISHED[name].domains
    return {
        f"{d}/{k}/{d}_{n}.jpg": f"{d} {k} {n}".encode()
        for d in domains
        for k in ("dog", "person")
        for n in "12"
    }


def annotations() -> dict[str, list[dict[str, object]]]:
    return {
        "images": [{"id": f"{n}", "location": n, "file_name": f"{n}.jpg"} for n in (38, 46, 100, 43, 7)],
        "annotations": [{"image_id": f"{n}", "category_id": 0} for n in (38, 46, 100, 43, 7)],
        "categories": [{"id": 0, "name": "dog"}],
    }


def published(name: str) -> tuple[dict[str, bytes], Files]:
    """The archives of a set as they are published, by file name, and the files that must come of them."""
    files = pictures(name)
    if name == "DomainNet":
        parts = {
            d: zipped({k: v for k, v in files.items() if k.startswith(d)}) for d in PUBLISHED[name].domains
        }
        gone = ["clipart/dog/clipart_1.jpg", "real/dog/real_2.jpg", "real/person/real_1.jpg"]
        archives = {f"{domain}.zip": data for domain, data in parts.items()}
        left = {name: data for name, data in files.items() if name not in gone}
        return {**archives, DUPLICATES: "\n".join(gone).encode()}, left
    if name == "TerraIncognita":
        numbers = (38, 46, 100, 43)
        images = tarred({f"eccv_18_all_images_sm/{n}.jpg": f"{n}".encode() for n in (*numbers, 7)})
        nothing = json.dumps({"images": [], "annotations": [], "categories": []}).encode()
        inside = json.dumps(annotations()).encode()
        parts = {"files/cis_val_annotations.json": nothing, "files/train_annotations.json": inside}
        made = {f"location_{n}/dog/{n}.jpg": f"{n}".encode() for n in numbers}
        return {"eccv_18_all_images_sm.tar.gz": images, "eccv_18_annotations.tar.gz": tarred(parts)}, made
    (file,) = PUBLISHED[name].files
    inside = {f"{name}/{path}": data for path, data in files.items()}
    strays = {"__MACOSX/._x": b"stray", "readme.txt": b"stray"}
    return {file.file: (zipped if file.file.endswith("zip") else tarred)({**inside, **strays})}, files


def offered(web: Web, name: str, **how: object) -> tuple[PublishedSet, Files]:
    """The true row of the table with addresses of the local server, and what must come of it."""
    archives, made = published(name)
    row = PUBLISHED[name]
    assert sorted(archives) == sorted(file.file for file in row.files)
    files = tuple(
        replace(file, mirrors=(web.serve(f"/{file.file}", archives[file.file], **how),), sha256=None)
        for file in row.files
    )
    counts = tuple(sum(name.startswith(f"{domain}/") for name in made) for domain in row.domains)
    return replace(row, files=files, variants={"a miniature": counts}), made


def tree(folder: Path) -> Files:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("name", list(PUBLISHED))
def test_every_set_comes_to_its_folder_and_is_not_fetched_again(web: Web, tmp_path: Path, name: str) -> None:
    source, made = offered(web, name)
    said: list[str] = []
    where = download(name, tmp_path, source=source, say=said.append)
    assert where == tmp_path / PUBLISHED[name].folders[0]
    assert tree(where) == made
    assert f"with {len(made)} images" in said[-1]
    assert ("3 duplicates were removed." in said) == (name == "DomainNet")
    assert said[-1].endswith("as published.")
    kept = {path.name for path in (tmp_path / "downloads" / name).iterdir() if "lock" not in path.name}
    assert kept == {file.file for file in source.files}
    asked = len(web.asked)
    assert download(name, tmp_path, source=source, say=said.append) == where
    assert said[-1] == f"{name} is complete already in {where}."
    assert len(web.asked) == asked == len(source.files)


def fill(folder: Path, counts: dict[str, int]) -> None:
    for domain, count in counts.items():
        (folder / domain / "dog").mkdir(parents=True)
        for k in range(count):
            (folder / domain / "dog" / f"{k}.png").touch()


@pytest.mark.parametrize("folder", ["PACS", "kfold"])
def test_a_published_set_that_is_there_is_recognised(tmp_path: Path, folder: str) -> None:
    counts = dict(zip(PUBLISHED["PACS"].domains, (2048, 2344, 1670, 3929), strict=True))
    fill(tmp_path / folder, counts)
    assert download("pacs", tmp_path) == tmp_path / folder == find_complete(PUBLISHED["PACS"], tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [folder]
    (tmp_path / folder / "photo" / "dog" / "7.png").unlink()
    assert find_complete(PUBLISHED["PACS"], tmp_path) is None


def test_a_folder_with_something_else_is_not_touched(web: Web, tmp_path: Path) -> None:
    source, made = offered(web, "PACS")
    fill(tmp_path / "PACS", {"photo": 3})
    with pytest.raises(DataError, match="does not have the images of PACS"):
        download("PACS", tmp_path, source=source)
    assert len(tree(tmp_path / "PACS")) == 3
    assert web.asked == []
    (tmp_path / "PACS").rename(tmp_path / "mine")
    (tmp_path / "PACS").mkdir()
    assert tree(download("PACS", tmp_path, source=source)) == made


@pytest.mark.parametrize("name", ["PACS", "TerraIncognita", "DomainNet"])
@pytest.mark.parametrize("after", [False, True])
def test_interrupted_at_every_rename_the_same_call_goes_on(
    web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, after: bool
) -> None:
    """Every stage ends in a rename; calls are stopped at the first, second, ... one, before or after it."""
    source, made = offered(web, name)
    left = [0]

    def stopping(true: Callable[[Path, Path], Path]) -> Callable[[Path, Path], Path]:
        def act(self: Path, target: Path) -> Path:
            left[0] -= 1
            if left[0] < 0 and not after:
                raise KeyboardInterrupt
            result = true(self, target)
            if left[0] < 0:
                raise KeyboardInterrupt
            return result

        return act

    monkeypatch.setattr(Path, "rename", stopping(Path.rename))
    monkeypatch.setattr(Path, "replace", stopping(Path.replace))
    stops = 0
    for allowed in range(200):
        left[0] = allowed // 2
        try:
            where = download(name, tmp_path, source=source)
            break
        except KeyboardInterrupt:
            stops += 1
    assert stops > 3
    assert tree(where) == made
    assert not (tmp_path / "downloads" / name / "unpacked").exists()


def test_after_kill_9_the_same_call_goes_on(web: Web, tmp_path: Path) -> None:
    source, made = offered(web, "DomainNet", pause=0.03)
    code = (
        "from pathlib import Path\nfrom genie_dg.data.published.download import download\n"
        "from genie_dg.data.published.catalog import PublishedSet, SourceFile\n"
        f"download('DomainNet', Path('.'), source={source!r})\n"
    )
    third = tmp_path / "downloads" / "DomainNet" / "painting.zip"
    with subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path) as child:
        wait_until(third.exists, child)
        with pytest.raises(Busy, match=r"Another process \(.*\) downloads"):
            download("DomainNet", tmp_path, source=source)
        os.kill(child.pid, signal.SIGKILL)
    assert not (tmp_path / "domain_net").exists()
    for file in web.files.values():
        file.pause = 0
    assert tree(download("DomainNet", tmp_path, source=source)) == made
    assert web.ranges("/clipart.zip") == web.ranges("/painting.zip") == [None]


def test_a_damaged_archive_is_put_aside_and_fetched_again(web: Web, tmp_path: Path) -> None:
    source, made = offered(web, "VLCS")
    whole = web.files["/VLCS.tar.gz"].data
    web.files["/VLCS.tar.gz"].data = whole[:-20]
    with pytest.raises(DamagedArchive, match=r"VLCS\.tar\.gz is damaged .*kept as VLCS\.tar\.gz\.bad"):
        download("VLCS", tmp_path, source=source)
    web.files["/VLCS.tar.gz"].data = whole
    assert tree(download("VLCS", tmp_path, source=source)) == made


def test_a_file_put_by_hand_is_used(web: Web, tmp_path: Path) -> None:
    source, made = offered(web, "VLCS", statuses=[404] * 5)
    data = web.files["/VLCS.tar.gz"].data
    with pytest.raises(FetchError) as caught:
        download("VLCS", tmp_path, source=source)
    place = tmp_path / "downloads" / "VLCS" / "VLCS.tar.gz"
    assert f"put it at {place} and run the same command again" in str(caught.value)
    place.write_bytes(data)
    assert tree(download("VLCS", tmp_path, source=source)) == made


def test_the_annotations_of_2021_can_be_put_by_hand(web: Web, tmp_path: Path) -> None:
    source, made = offered(web, "TerraIncognita")
    web.files["/eccv_18_annotations.tar.gz"].statuses = [404] * 9
    work = tmp_path / "downloads" / "TerraIncognita"
    with pytest.raises(FetchError):
        download("TerraIncognita", tmp_path, source=source)
    one = json.dumps(annotations()).encode()
    (work / TERRA_2021).write_bytes(zipped({"caltech_images_20210113.json": one}))
    assert tree(download("TerraIncognita", tmp_path, source=source)) == made


@pytest.mark.parametrize("prefix", ["pacs/images/", "other/name/", ""])
def test_another_copy_is_known_by_its_domains(web: Web, tmp_path: Path, prefix: str) -> None:
    source, made = offered(web, "PACS")
    inside = {prefix + name: data for name, data in pictures("PACS").items()}
    web.files["/PACS.zip"].data = zipped({**inside, "splits/x.txt": b""} if prefix else inside)
    assert tree(download("PACS", tmp_path, source=source)) == made


def test_an_archive_of_something_else_is_named(web: Web, tmp_path: Path) -> None:
    source, _ = offered(web, "PACS")
    web.files["/PACS.zip"].data = zipped({"cats/1.jpg": b"1"})
    with pytest.raises(DataError, match=r"PACS\.zip has cats in it, not art_painting and"):
        download("PACS", tmp_path, source=source)
    assert not (tmp_path / "PACS").exists()


HOSTILE = ["../x", "/x", "a/../../x"]


@pytest.mark.parametrize("name", HOSTILE)
def test_no_member_of_an_archive_leaves_the_folder(tmp_path: Path, name: str) -> None:
    place = tmp_path / "work" / "inside"
    (tmp_path / "a.zip").write_bytes(zipped({"good": b"good", name: b"evil"}))
    unpack(tmp_path / "a.zip", place / "zip")
    assert tree(place / "zip") == {"good": b"good"}
    (tmp_path / "a.tar.gz").write_bytes(tarred({"good": b"good", name: b"evil"}))
    if name == "/x":  # tarfile's filter takes the slash off
        unpack(tmp_path / "a.tar.gz", place / "tar")
        assert tree(place / "tar") == {"good": b"good", "x": b"evil"}
    else:
        with pytest.raises(DamagedArchive, match="outside the destination"):
            unpack(tmp_path / "a.tar.gz", place / "tar")
    assert {path.name for path in place.iterdir()} <= {"zip", "tar"}


@pytest.mark.parametrize("suffix", [".zip", ".tar.gz"])
def test_every_cut_and_every_other_file_is_noticed(tmp_path: Path, suffix: str) -> None:
    whole = (zipped if suffix == ".zip" else tarred)({"a": b"1" * 5000, "b": b"2" * 5000})
    flipped = bytearray(whole)
    flipped[len(whole) // 3] ^= 255
    parts = [whole[: len(whole) * k // 5] for k in range(5)] + [whole[:-1], b"<html>", bytes(flipped)]
    for data in parts:
        archive = tmp_path / f"a{suffix}"
        archive.write_bytes(data)
        with pytest.raises(DamagedArchive, match=r"is damaged .*kept as a.*\.bad"):
            unpack(archive, tmp_path / "out")
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("line", ["../victim/x/1.jpg", "/victim/x/1.jpg", "clipart/../../victim"])
def test_a_list_that_names_files_outside_removes_nothing(tmp_path: Path, line: str) -> None:
    (tmp_path / "set" / "clipart").mkdir(parents=True)
    (tmp_path / "set" / "clipart" / "1.jpg").touch()
    (tmp_path / "list.txt").write_text(f"clipart/1.jpg\n{line}\n")
    with pytest.raises(DataError, match="nothing was removed"):
        remove_listed(tmp_path / "set", tmp_path / "list.txt")
    assert (tmp_path / "set" / "clipart" / "1.jpg").exists()


def test_listed_files_are_removed_and_counted(tmp_path: Path) -> None:
    for name in ("1.jpg", "2.jpg", "3.jpg"):
        (tmp_path / name).touch()
    (tmp_path / "list.txt").write_text("1.jpg\r\n\r\n2.jpg\r\n1.jpg\r\n9.jpg\r\n")
    assert remove_listed(tmp_path, tmp_path / "list.txt") == 2
    assert [path.name for path in tmp_path.glob("*.jpg")] == ["3.jpg"]
