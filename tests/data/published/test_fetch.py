"""Fetching over real sockets: broken transfers go on, changed files are not joined, mirrors stand in."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from genie_dg.data.published.catalog import SourceFile
from genie_dg.data.published.fetch import FetchError, fetch

from .web_server import Web, running

DATA = random.Random(1).randbytes(3_000_000)
OTHER = random.Random(2).randbytes(3_000_000)


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr("pooch.core.time.sleep", lambda seconds: None)  # between two attempts
    with running() as server:
        yield server


def source(*mirrors: str, sha256: str | None = None) -> SourceFile:
    return SourceFile("f.zip", mirrors, sha256=sha256)


def wait_until(true: Callable[[], bool], child: subprocess.Popen[bytes]) -> None:
    """Wait for a condition while a child process works."""
    deadline = time.monotonic() + 60
    while not true():
        assert child.poll() is None, "the child ended too early"
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_a_file_comes_whole_and_is_not_fetched_twice(web: Web, tmp_path: Path) -> None:
    target = tmp_path / "new" / "f.zip"
    file = source(web.serve("/f.zip", DATA), sha256=hashlib.sha256(DATA).hexdigest())
    for _ in range(2):
        assert fetch(file, target) == target
        assert target.read_bytes() == DATA
        assert web.ranges("/f.zip") == [None]
    assert [path.name for path in target.parent.iterdir()] == ["f.zip"]


def test_a_transfer_that_breaks_off_goes_on_at_the_right_byte(web: Web, tmp_path: Path) -> None:
    url = web.serve("/f.zip", DATA, break_after=[2**20, 0, 2**19, 0])
    fetch(source(url), tmp_path / "f.zip")
    assert (tmp_path / "f.zip").read_bytes() == DATA
    assert web.ranges("/f.zip") == [None, None, "bytes=1048576-", None, "bytes=1572864-"]
    assert [path.name for path in tmp_path.iterdir()] == ["f.zip"]


def test_the_next_call_goes_on_and_a_changed_file_starts_over(web: Web, tmp_path: Path) -> None:
    for name, changed, asked in (("a", {}, "bytes=1048576-"), ("b", {"etag": '"v2"', "data": OTHER}, None)):
        url = web.serve(f"/{name}", DATA, break_after=[2**20, *[0] * 6])
        with pytest.raises(FetchError, match="could not be fetched"):
            fetch(source(url), tmp_path / name)
        data = changed.pop("data", DATA)
        web.serve(f"/{name}", data, **changed)
        web.asked.clear()
        fetch(source(url), tmp_path / name)
        assert (tmp_path / name).read_bytes() == data
        assert web.ranges(f"/{name}")[-1] == asked


@pytest.mark.parametrize("how", [{"ranges": False}, {"etag": None}, {"says_length": False}])
def test_servers_without_ranges_versions_or_lengths(web: Web, tmp_path: Path, how: dict[str, object]) -> None:
    broken = [] if "says_length" in how else [1_000_000]
    url = web.serve("/f.zip", DATA, break_after=broken, **how)
    fetch(source(url), tmp_path / "f.zip")
    assert (tmp_path / "f.zip").read_bytes() == DATA


def test_a_mirror_that_fails_is_passed_over(web: Web, tmp_path: Path) -> None:
    bad = [
        web.serve("/404.zip", b"", statuses=[404] * 9),
        web.serve("/page.zip", b"<html>", content_type="text/html; charset=utf-8"),
        web.serve("/other.zip", OTHER),
    ]
    good = hashlib.sha256(DATA).hexdigest()
    with pytest.raises(FetchError, match=r"404 .*; .*a web page.*; .*f\.zip.*download it by hand, put it at"):
        fetch(source(*bad, sha256=good), tmp_path / "f.zip")
    assert not (tmp_path / "f.zip").exists()
    fetch(source(*bad, web.serve("/f.zip", DATA), sha256=good), tmp_path / "f.zip")
    assert (tmp_path / "f.zip").read_bytes() == DATA


def test_after_kill_9_the_same_call_goes_on(web: Web, tmp_path: Path) -> None:
    url = web.serve("/f.zip", DATA, pause=0.02)
    code = (
        "from pathlib import Path\nfrom genie_dg.data.published.catalog import SourceFile\n"
        "from genie_dg.data.published.fetch import fetch\n"
        f"fetch(SourceFile('f.zip', ({url!r},)), Path('f.zip'))\n"
    )

    def size() -> int:
        return sum(path.stat().st_size for path in tmp_path.glob("*.part"))

    with subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path) as child:
        wait_until(lambda: size() > 100_000, child)
        os.kill(child.pid, signal.SIGKILL)
    kept = size()
    web.files["/f.zip"].pause = 0
    fetch(source(url), tmp_path / "f.zip")
    assert (tmp_path / "f.zip").read_bytes() == DATA
    assert web.ranges("/f.zip")[-1] == f"bytes={kept}-"
