"""Archives from outside: good ones come out whole, hostile and broken ones leave no trace."""

from __future__ import annotations

import gzip
import io
import os
import random
import signal
import stat
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from genie_dg.data.published import archives
from genie_dg.data.published.archives import ArchiveError, DamagedArchive, extract, safe_parts
from genie_dg.files import Busy, FileError, held_by, lock

FILES = {"photo/dog/1.jpg": b"one", "photo/dog/2 ü.jpg": b"two" * 1000, "photo/empty.txt": b""}
"""Nothing that the children do here computes, and torch takes seconds to load."""


def make_zip(path: Path, files: dict[str, bytes] | None = None) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in (FILES if files is None else files).items():
            archive.writestr(name, content)
    return path


def make_tar(
    path: Path, members: list[tarfile.TarInfo | tuple[str, bytes]] | None = None, mode: str = "w"
) -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for member in list(FILES.items()) if members is None else members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                archive.addfile(info, io.BytesIO(member[1]))
    return path


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def entries(folder: Path) -> list[str]:
    """Everything below a folder but lock files, which stay."""
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.suffix != ".lock")


def names(folder: Path) -> list[str]:
    """What is in a folder but lock files."""
    return [name for name in entries(folder) if "/" not in name]


def refused(archive: Path) -> str:
    """Extract beside a witness; it must fail in one sentence and leave nothing. Gives the sentence."""
    target = archive.parent / "place" / "target"
    target.mkdir(parents=True)
    (target / "mine.txt").write_text("mine")
    before = entries(archive.parent)
    with pytest.raises(ArchiveError) as caught:
        extract(archive, target)
    assert entries(archive.parent) == before
    assert tree(target) == {"mine.txt": b"mine"}
    sentence = str(caught.value)
    assert sentence.startswith(str(archive))
    assert sentence.endswith(".")
    assert "\n" not in sentence
    return sentence


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz", "tar.bz2", "tar.xz"])
def test_good_archives_come_out_whole(tmp_path: Path, kind: str) -> None:
    archive = tmp_path / "a.bin"  # the name says nothing
    make_zip(archive) if kind == "zip" else make_tar(archive, mode="w:" + kind[4:])
    seen: list[tuple[int, int | None]] = []
    extract(archive, tmp_path / "out", progress=lambda *where: seen.append(where))
    assert tree(tmp_path / "out") == FILES
    assert seen
    assert all(0 < at <= archive.stat().st_size == size for at, size in seen)
    assert names(tmp_path) == ["a.bin", "out"]


def test_folders_that_are_empty_or_the_root_are_kept(tmp_path: Path) -> None:
    folders = []
    for name in (".", "./empty"):
        info = tarfile.TarInfo(name)
        info.type, info.mode = tarfile.DIRTYPE, 0o000
        folders.append(info)
    extract(make_tar(tmp_path / "a.tar", [*folders, ("./x/1", b"1")]), tmp_path / "out")
    assert (tmp_path / "out" / "empty").is_dir()
    assert tree(tmp_path / "out") == {"x/1": b"1"}


@pytest.mark.parametrize(
    "name",
    ["/etc/x", "../x", "a/../../x", "a/..", "C:/x", "c:x", "..\\x", "a\\b", "a/" + "n" * 256, "a/" * 600],
)
@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_paths_that_leave_or_hide_are_refused(tmp_path: Path, name: str, kind: str) -> None:
    content = b"evil"
    good = ("good.txt", b"good")
    if kind == "zip":
        archive = make_zip(tmp_path / "a.zip", {good[0]: good[1], name: content})
    else:
        archive = make_tar(tmp_path / "a.tar", [good, (name, content)])
    assert repr(name.rstrip("/"))[:40].rstrip("'") in refused(archive)


def test_a_zero_byte_in_a_name_is_refused(tmp_path: Path) -> None:
    archive = make_zip(tmp_path / "a.zip", {"abcdefgh/x": b"1"})
    archive.write_bytes(archive.read_bytes().replace(b"abcdefgh/x", b"abcdef\0h/x"))
    assert "zero byte" in refused(archive)


def special_zip(path: Path, kind: int) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        info = zipfile.ZipInfo("link")
        info.external_attr = (kind | 0o777) << 16
        archive.writestr(info, "/etc/passwd")
    return path


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFSOCK])
def test_links_and_devices_in_a_zip_are_refused(tmp_path: Path, kind: int) -> None:
    sentence = refused(special_zip(tmp_path / "a.zip", kind))
    assert "'link'" in sentence
    assert ("symbolic link" in sentence) == (kind == stat.S_IFLNK)


@pytest.mark.parametrize("kind", ["SYMTYPE", "LNKTYPE", "FIFOTYPE", "CHRTYPE", "BLKTYPE", "GNUTYPE_SPARSE"])
def test_links_and_devices_in_a_tar_are_refused(tmp_path: Path, kind: str) -> None:
    info = tarfile.TarInfo("link")
    info.type, info.linkname = getattr(tarfile, kind), "good.txt"
    sentence = refused(make_tar(tmp_path / "a.tar", [("good.txt", b"good"), info, ("link/x", b"evil")]))
    assert "'link'" in sentence
    words = {"SYMTYPE": "symbolic link", "LNKTYPE": "hard link", "GNUTYPE_SPARSE": "sparse"}
    assert words.get(kind, "special file") in sentence


def test_an_encrypted_member_is_refused(tmp_path: Path) -> None:
    archive = make_zip(tmp_path / "a.zip", {"x": b"1"})
    data = bytearray(archive.read_bytes())
    data[data.index(b"PK\x01\x02") + 8] |= 1
    archive.write_bytes(data)
    assert "encrypted" in refused(archive)


@pytest.mark.parametrize("second", ["x/1", "x", "x/./1", "x/1/deeper"])
def test_members_that_overwrite_one_another_are_refused(tmp_path: Path, second: str) -> None:
    sentence = refused(make_tar(tmp_path / "a.tar", [("x/1", b"first"), (second, b"second")]))
    assert repr(second) in sentence
    assert "overwrite" in sentence


def test_an_existing_file_that_differs_is_not_touched(tmp_path: Path) -> None:
    assert "'mine.txt'" in refused(make_zip(tmp_path / "a.zip", {"new.txt": b"new", "mine.txt": b"theirs"}))


def test_files_are_added_to_an_existing_folder_and_equal_ones_kept(tmp_path: Path) -> None:
    target = tmp_path / "out"
    (target / "photo" / "dog").mkdir(parents=True)
    (target / "photo" / "dog" / "1.jpg").write_bytes(FILES["photo/dog/1.jpg"])
    (target / "mine").write_text("mine")
    extract(make_zip(tmp_path / "a.zip"), target)
    assert tree(target) == {**FILES, "mine": b"mine"}
    extract(tmp_path / "a.zip", target)
    assert tree(target) == {**FILES, "mine": b"mine"}


def test_a_link_in_the_target_is_not_followed(tmp_path: Path) -> None:
    outside, target = tmp_path / "outside", tmp_path / "out"
    outside.mkdir()
    target.mkdir()
    (target / "photo").symlink_to(outside)
    with pytest.raises(ArchiveError, match="through a link"):
        extract(make_zip(tmp_path / "a.zip"), target)
    assert list(outside.iterdir()) == []


def test_setuid_and_other_permission_bits_are_not_taken_over(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        info = zipfile.ZipInfo("tool")
        info.external_attr = (stat.S_IFREG | 0o6777) << 16
        archive.writestr(info, "x")
    extract(tmp_path / "a.zip", tmp_path / "out")
    mode = stat.S_IMODE((tmp_path / "out" / "tool").stat().st_mode)
    assert mode & 0o7111 == 0
    assert mode & 0o400


def test_a_bomb_by_ratio_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    filler = random.Random(0).randbytes(1 << 20)  # with it the archive as a whole looks harmless
    archive = make_zip(tmp_path / "a.zip", {"filler": filler, "bomb": bytes(40 << 20)})
    assert "'bomb'" in refused(archive)


def test_a_tar_bomb_is_refused_by_what_comes_out(tmp_path: Path) -> None:
    archive = make_tar(tmp_path / "a.tar.gz", [(f"{k}", bytes(3 << 20)) for k in range(8)], "w:gz")
    assert "times its packed size" in refused(archive)


def test_the_limits_of_bytes_and_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random_bytes = random.Random(0).randbytes(5000)
    archive = make_tar(tmp_path / "a.tar", [("1", random_bytes), ("2", random_bytes)])
    monkeypatch.setattr(archives, "MOST_BYTES", 9999)
    assert "'2'" in refused(archive)
    monkeypatch.setattr(archives, "MOST_BYTES", 10_000)
    monkeypatch.setattr(archives, "MOST_MEMBERS", 2)
    extract(archive, tmp_path / "ten")
    (tmp_path / "place" / "target" / "mine.txt").unlink()
    (tmp_path / "place" / "target").rmdir()
    monkeypatch.setattr(archives, "MOST_MEMBERS", 1)
    assert "'2'" in refused(archive.rename(tmp_path / "b.tar"))


@pytest.mark.parametrize("claimed", [10, 1 << 20])
def test_a_falsified_size_does_not_let_a_bomb_through(tmp_path: Path, claimed: int) -> None:
    """The header claims little, the data inflate to 40 MiB; no more than claimed is ever written."""
    archive = make_zip(tmp_path / "a.zip", {"bomb": bytes(40 << 20)})
    true = (40 << 20).to_bytes(4, "little")
    data = archive.read_bytes()
    assert data.count(true) == 2
    archive.write_bytes(data.replace(true, claimed.to_bytes(4, "little")))
    seen = [0]

    def look(at: int, size: int | None) -> None:
        written = sum(p.stat().st_size for p in tmp_path.rglob(".out.extracting/*"))
        seen.append(written)

    with pytest.raises(DamagedArchive):
        extract(archive, tmp_path / "out", progress=look)
    assert max(seen) <= claimed
    assert not (tmp_path / "out").exists()


def test_a_size_that_claims_too_much_is_refused(tmp_path: Path) -> None:
    archive = make_zip(tmp_path / "a.zip", {"x": b"12345" * 77})
    data, true = archive.read_bytes(), (385).to_bytes(4, "little")
    archive.write_bytes(data.replace(true, (400).to_bytes(4, "little")))
    assert "damaged" in refused(archive) or "corrupt" in refused(archive)


def test_an_archive_in_an_archive_is_a_file(tmp_path: Path) -> None:
    inner = make_zip(tmp_path / "inner.zip", {"../evil": b"evil"}).read_bytes()
    extract(make_zip(tmp_path / "a.zip", {"inner.zip": inner}), tmp_path / "out")
    assert tree(tmp_path / "out") == {"inner.zip": inner}


def test_a_giant_pax_header_is_not_read(tmp_path: Path) -> None:
    info = tarfile.TarInfo("pax")
    info.type, info.size = tarfile.XHDTYPE, 1 << 30
    (tmp_path / "a.tar").write_bytes(info.tobuf() + bytes(2048))
    assert "headers claims" in refused(tmp_path / "a.tar")


@pytest.mark.parametrize("content", [b"", b"no archive", b"<!DOCTYPE html><html>quota</html>" + bytes(600)])
def test_what_is_no_archive_is_called_damaged(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.zip").write_bytes(content)
    sentence = refused(tmp_path / "a.zip")
    assert ("web page" in sentence) == (b"html" in content)


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz", "zip"])
def test_every_cut_is_noticed(tmp_path: Path, mode: str) -> None:
    """Also one between two members of a tar, where tarfile itself sees nothing wrong."""
    whole = tmp_path / "whole"
    make_zip(whole) if mode == "zip" else make_tar(whole, mode=mode)
    data = whole.read_bytes()
    end = len(data)
    while mode == "w" and data[end - 512 : end] == bytes(512):  # all of a tar but its mark of the end
        end -= 512
    for length in [1, end // 3, end // 2, end - 1, *(range(512, end + 1, 512) if mode == "w" else ())]:
        (tmp_path / "cut").write_bytes(data[:length])
        with pytest.raises(DamagedArchive):
            extract(tmp_path / "cut", tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_a_wrong_byte_in_compressed_data_is_noticed_by_the_checksum(tmp_path: Path) -> None:
    make_tar(tmp_path / "a.tar")
    packed = bytearray(gzip.compress((tmp_path / "a.tar").read_bytes(), compresslevel=0))
    packed[packed.index(b"two")] ^= 1
    (tmp_path / "a.tar.gz").write_bytes(packed)
    assert "corrupt" in refused(tmp_path / "a.tar.gz")


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz", "tar.bz2"])
def test_random_damage_gives_an_archive_error_or_files_below_the_target(tmp_path: Path, kind: str) -> None:
    archive = tmp_path / "a"
    make_zip(archive) if kind == "zip" else make_tar(archive, mode="w:" + kind[4:])
    data, rng = archive.read_bytes(), random.Random(kind)
    refusals = 0
    for trial in range(60):
        wrong = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            wrong[rng.randrange(min(len(wrong), 4000))] = rng.randrange(256)
        archive.write_bytes(wrong[: rng.randint(1, len(wrong))] if trial % 3 == 0 else wrong)
        try:
            extract(archive, tmp_path / "all" / f"{trial}")
        except ArchiveError:
            refusals += 1
    assert refusals >= 20
    assert set(names(tmp_path)) <= {"a", "all"}
    assert all(name.isdecimal() for name in names(tmp_path / "all"))


def test_a_missing_archive_and_a_full_disk_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="No such file"):
        extract(tmp_path / "none.zip", tmp_path / "out")
    make_tar(tmp_path / "a.tar", [("small", b"1"), ("large", bytes(300_000))])
    code = (
        "import resource\nfrom pathlib import Path\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))  # the disk takes no more\n"
        "from genie_dg.data.published.archives import ArchiveError, extract\n"
        "try:\n    extract(Path('a.tar'), Path('out'))\nexcept ArchiveError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "a.tar cannot be unpacked to out: File too large.\n", done.stderr
    assert names(tmp_path) == ["a.tar"]


def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    def stop(done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        extract(make_zip(tmp_path / "a.zip"), tmp_path / "out", progress=stop)
    assert names(tmp_path) == ["a.zip"]


def wait_until(true: Callable[[], bool], child: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert child.poll() is None, "the child ended too early"
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_after_kill_9_the_same_call_succeeds(tmp_path: Path) -> None:
    files = {f"d{k % 7}/{k}.bin": random.Random(k).randbytes(100) for k in range(400)}
    make_zip(tmp_path / "a.zip", files)
    code = (
        "import time\nfrom pathlib import Path\nfrom genie_dg.data.published.archives import extract\n"
        "extract(Path('a.zip'), Path('out'), progress=lambda done, total: time.sleep(0.01))\n"
    )
    made = tmp_path / ".out.extracting"
    with subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path) as child:
        wait_until(lambda: len(tree(made)) > 20 if made.exists() else False, child)
        with pytest.raises(Busy, match=r"Another process \(.*\) unpacks"):
            extract(tmp_path / "a.zip", tmp_path / "out")
        os.kill(child.pid, signal.SIGKILL)
    assert not (tmp_path / "out").exists()
    assert 20 < len(tree(made)) < 400
    extract(tmp_path / "a.zip", tmp_path / "out")
    assert tree(tmp_path / "out") == files
    assert names(tmp_path) == ["a.zip", "out"]


def test_the_lock_is_held_once_and_let_go(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "lock"
    with (
        lock(path, "unpacks"),
        pytest.raises(Busy, match=r"Another process \(.*\) unpacks"),
        lock(path, "unpacks"),
    ):
        pass
    with lock(path, "unpacks"):
        assert path.exists()
    assert not held_by(path)
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot be written"), lock(tmp_path / "file" / "lock", "unpacks"):
        pass


def test_plain_relative_paths_pass() -> None:
    assert safe_parts("a//b/./c..jpg") == ("a", "b", "c..jpg")
    assert safe_parts("") == ()
