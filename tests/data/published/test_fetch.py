"""Fetching over real sockets: broken transfers go on, changed files are not glued, mirrors stand in."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from genie_dg.data.published import fetch as fetch_module
from genie_dg.data.published.fetch import FetchError, addresses, fetch
from genie_dg.files import Busy

from .test_archives import wait_until
from .web_server import Web, running

DATA = random.Random(1).randbytes(3_000_000)
OTHER = random.Random(2).randbytes(3_000_000)


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    monkeypatch.setenv("no_proxy", "*")
    with running() as server:
        yield server


def quickly(sources: list[str], target: Path, **options: object) -> Path:
    return fetch(sources, target, **{"pause": 0.001, "timeout": 5, **options})  # type: ignore[arg-type]


def names(folder: Path) -> list[str]:
    """What is in a folder but lock files, which stay."""
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


def dead_address() -> str:
    """An address on this machine where nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/f.zip"


def test_a_file_comes_whole_and_is_not_fetched_twice(web: Web, tmp_path: Path) -> None:
    url = web.serve("/f.zip", DATA)
    seen: list[tuple[int, int | None]] = []
    target = tmp_path / "new" / "f.zip"
    options = {"sha256": hashlib.sha256(DATA).hexdigest().upper(), "size": len(DATA)}
    assert quickly([url], target, progress=lambda *at: seen.append(at), **options) == target
    assert target.read_bytes() == DATA
    assert names(target.parent) == ["f.zip"]
    assert seen == sorted(seen)
    assert seen[-1] == (len(DATA), len(DATA))
    quickly([url], target, **options)
    assert web.ranges("/f.zip") == [None]


def test_a_transfer_that_breaks_off_goes_on_at_the_right_byte(web: Web, tmp_path: Path) -> None:
    url = web.serve("/f.zip", DATA, break_after=[1_000_000, 0, 500_000])
    quickly([url], tmp_path / "f.zip")
    assert (tmp_path / "f.zip").read_bytes() == DATA
    assert web.ranges("/f.zip") == [None, "bytes=1000000-", "bytes=1000000-", "bytes=1500000-"]
    assert [headers.get("If-Range") for _, headers in web.asked] == [None, '"v1"', '"v1"', '"v1"']


def test_progress_in_between_starts_the_count_of_attempts_anew(web: Web, tmp_path: Path) -> None:
    url = web.serve("/f.zip", DATA, break_after=[100_000] * 20)
    quickly([url], tmp_path / "f.zip", attempts=2)
    assert (tmp_path / "f.zip").read_bytes() == DATA


def test_the_next_call_goes_on_too(web: Web, tmp_path: Path) -> None:
    date = "Mon, 01 Jan 2024 00:00:00 GMT"
    url = web.serve("/f.zip", DATA, etag='W/"weak"', modified=date, break_after=[1_000_000])
    with pytest.raises(FetchError, match="broke off after 1,000,000 of 3,000,000 bytes"):
        quickly([url], tmp_path / "f.zip", attempts=1)
    assert names(tmp_path) == ["f.zip.part", "f.zip.part.json"]
    quickly([url], tmp_path / "f.zip")
    assert (tmp_path / "f.zip").read_bytes() == DATA
    assert web.ranges("/f.zip") == [None, "bytes=1000000-"]
    assert web.asked[1][1]["If-Range"] == date
    assert names(tmp_path) == ["f.zip"]


@pytest.mark.parametrize("checks", [True, False])
@pytest.mark.parametrize("length", [3_000_000, 2_000_000, 500_000, 1_000_000])
def test_a_changed_file_is_not_glued_to_the_old_part(
    web: Web, tmp_path: Path, checks: bool, length: int
) -> None:
    """Whether or not the server heeds If-Range; also when the new file is shorter than the part."""
    url = web.serve("/f.zip", DATA, break_after=[1_000_000])
    with pytest.raises(FetchError):
        quickly([url], tmp_path / "f.zip", attempts=1)
    web.serve("/f.zip", OTHER[:length], etag='"v2"', checks_if_range=checks)
    quickly([url], tmp_path / "f.zip")
    assert (tmp_path / "f.zip").read_bytes() == OTHER[:length]


@pytest.mark.parametrize(
    ("data", "how"),
    [(DATA, {"shift": 1000}), (OTHER + OTHER, {"checks_if_range": False})],
    ids=["start", "length"],
)
def test_an_answer_that_does_not_fit_the_part_is_not_glued(
    web: Web, tmp_path: Path, data: bytes, how: dict[str, object]
) -> None:
    """It begins at another byte, or the file has another length under the same validator."""
    url = web.serve("/f.zip", DATA, break_after=[1_000_000])
    with pytest.raises(FetchError):
        quickly([url], tmp_path / "f.zip", attempts=1)
    web.serve("/f.zip", data, **how)
    quickly([url], tmp_path / "f.zip")
    assert (tmp_path / "f.zip").read_bytes() == data
    assert web.ranges("/f.zip") == [None, "bytes=1000000-", None], "refused by its header, before its bytes"


@pytest.mark.parametrize("how", [{"ranges": False}, {"etag": None}, {"etag": 'W/"weak"'}])
def test_without_ranges_or_a_validator_it_starts_again(
    web: Web, tmp_path: Path, how: dict[str, object]
) -> None:
    url = web.serve("/f.zip", DATA, break_after=[1_000_000, 2_000_000], **how)
    quickly([url], tmp_path / "f.zip")
    assert (tmp_path / "f.zip").read_bytes() == DATA


def test_a_part_without_its_note_is_not_trusted(web: Web, tmp_path: Path) -> None:
    (tmp_path / "f.zip.part").write_bytes(OTHER[:1000])
    url = web.serve("/f.zip", DATA)
    (tmp_path / "f.zip.part.json").write_text('{"url": "')
    quickly([url], tmp_path / "f.zip")
    assert (tmp_path / "f.zip").read_bytes() == DATA


def test_a_part_of_another_address_is_not_used(web: Web, tmp_path: Path) -> None:
    first = web.serve("/1/f.zip", OTHER, break_after=[1_000_000])
    with pytest.raises(FetchError):
        quickly([first], tmp_path / "f.zip", attempts=1)
    quickly([web.serve("/2/f.zip", DATA)], tmp_path / "f.zip")
    assert (tmp_path / "f.zip").read_bytes() == DATA


def test_the_mirror_of_the_part_is_asked_first(web: Web, tmp_path: Path) -> None:
    second = web.serve("/2/f.zip", DATA, break_after=[1_000_000])
    first = web.serve("/1/f.zip", b"", statuses=[404])
    with pytest.raises(FetchError):
        quickly([first, second], tmp_path / "f.zip", attempts=1)
    web.asked.clear()
    quickly([first, second], tmp_path / "f.zip")
    assert web.ranges("/1/f.zip") == []
    assert web.ranges("/2/f.zip") == ["bytes=1000000-"]


def test_a_whole_part_only_takes_its_name(web: Web, tmp_path: Path) -> None:
    url = web.serve("/f.zip", DATA)
    (tmp_path / "f.zip.part").write_bytes(DATA)
    note = {"url": url, "validator": '"v1"', "total": len(DATA)}
    (tmp_path / "f.zip.part.json").write_text(json.dumps(note))
    quickly([url], tmp_path / "f.zip")
    assert (tmp_path / "f.zip").read_bytes() == DATA
    assert web.asked == []


def test_a_whole_part_of_unknown_length_is_known_by_416(web: Web, tmp_path: Path) -> None:
    url = web.serve("/f.zip", DATA)
    (tmp_path / "f.zip.part").write_bytes(DATA)
    note = {"url": url, "validator": '"v1"', "total": None}
    (tmp_path / "f.zip.part.json").write_text(json.dumps(note))
    quickly([url], tmp_path / "f.zip")
    assert (tmp_path / "f.zip").read_bytes() == DATA
    assert web.ranges("/f.zip") == [f"bytes={len(DATA)}-"]


def test_a_server_that_does_not_say_the_length(web: Web, tmp_path: Path) -> None:
    url = web.serve("/f.zip", DATA, says_length=False)
    seen: list[tuple[int, int | None]] = []
    quickly([url], tmp_path / "f.zip", progress=lambda *at: seen.append(at))
    assert (tmp_path / "f.zip").read_bytes() == DATA
    assert seen[-1] == (len(DATA), None)


def test_temporary_errors_are_tried_again_with_growing_pauses(
    web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(fetch_module.time, "sleep", slept.append)
    url = web.serve("/f.zip", DATA, statuses=[503, 429, 500])
    fetch([url], tmp_path / "f.zip", pause=1, timeout=5)
    assert slept == [1, 2, 4]
    url = web.serve("/g.zip", DATA, statuses=[503] * 9)
    with pytest.raises(FetchError, match="HTTP 503"):
        fetch([url], tmp_path / "g.zip", attempts=3, timeout=5)
    assert len(web.ranges("/g.zip")) == 3


def test_a_server_that_falls_silent_is_left_after_the_timeout(web: Web, tmp_path: Path) -> None:
    url = web.serve("/f.zip", DATA, pause=5.0, etag=None)
    started = time.monotonic()
    with pytest.raises(FetchError, match="timed out"):
        quickly([url], tmp_path / "f.zip", timeout=0.1, attempts=2)
    assert time.monotonic() - started < 4
    assert web.ranges("/f.zip") == [None, None], "it may do better the second time"
    assert (tmp_path / "f.zip.part").read_bytes() == DATA[: 1 << 14]


def test_a_wrong_checksum_is_put_aside_and_the_next_mirror_asked(web: Web, tmp_path: Path) -> None:
    urls = [web.serve("/1/f.zip", OTHER), web.serve("/2/f.zip", DATA)]
    good = hashlib.sha256(DATA).hexdigest()
    with pytest.raises(FetchError, match=rf"its SHA-256 is \w+ and not {good}, kept as f.zip.bad\)") as caught:
        quickly(urls[:1], tmp_path / "f.zip", sha256=good)
    assert str(tmp_path / "f.zip") in str(caught.value)
    assert names(tmp_path) == ["f.zip.bad"]
    quickly(urls, tmp_path / "f.zip", sha256=good)
    assert (tmp_path / "f.zip").read_bytes() == DATA
    assert (tmp_path / "f.zip.bad").read_bytes() == OTHER


def test_a_wrong_size_is_noticed_before_and_after(web: Web, tmp_path: Path) -> None:
    said, unsaid = web.serve("/1/f.zip", DATA), web.serve("/2/f.zip", DATA, says_length=False)
    with pytest.raises(
        FetchError, match=r"it offers 3,000,000 bytes and not the 17 expected.*it has 3,000,000"
    ):
        quickly([said, unsaid], tmp_path / "f.zip", size=17)
    (tmp_path / "g.zip").write_bytes(b"by hand")
    with pytest.raises(FetchError, match="is there already but it has 7 bytes"):
        quickly([said], tmp_path / "g.zip", size=17)
    assert (tmp_path / "g.zip").read_bytes() == b"by hand"


PAGE = b"<!DOCTYPE html><head><title>Google Drive - Virus scan warning</title>" + bytes(2000)


@pytest.mark.parametrize(
    ("page", "content_type"), [(PAGE, "application/zip"), (PAGE[15:], "text/html; charset=utf-8")]
)
def test_a_web_page_is_not_taken_for_the_file(web: Web, tmp_path: Path, page: bytes, content_type: str) -> None:
    """The part that was there survives the page."""
    url = web.serve("/f.zip", DATA, break_after=[1_000_000])
    with pytest.raises(FetchError):
        quickly([url], tmp_path / "f.zip", attempts=1)
    web.serve("/f.zip", page, content_type=content_type, etag=None)
    with pytest.raises(FetchError, match="Google Drive - Virus scan warning"):
        quickly([url], tmp_path / "f.zip")
    web.serve("/f.zip", DATA)
    quickly([url], tmp_path / "f.zip")
    assert web.ranges("/f.zip")[-1] == "bytes=1000000-"
    assert (tmp_path / "f.zip").read_bytes() == DATA


def test_a_dead_first_mirror_is_passed_over(web: Web, tmp_path: Path) -> None:
    urls = [dead_address(), web.serve("/404.zip", b"", statuses=[404]), web.serve("/f.zip", DATA)]
    started = time.monotonic()
    fetch(urls, tmp_path / "f.zip")
    assert time.monotonic() - started < 6, "what is dead must not be waited for"
    assert (tmp_path / "f.zip").read_bytes() == DATA


def test_when_all_mirrors_fail_one_sentence_says_it_all(web: Web, tmp_path: Path) -> None:
    dead, gone = dead_address(), web.serve("/gone/f.zip", b"", statuses=[404])
    with pytest.raises(FetchError) as caught:
        quickly([dead, gone], tmp_path / "f.zip")
    assert str(caught.value) == (
        f"f.zip could not be fetched ({dead}: Connection refused; {gone}: HTTP 404 Not Found); "
        f"download it by hand, put it at {tmp_path / 'f.zip'} and try again."
    )
    assert names(tmp_path) == []
    with pytest.raises(FetchError, match="no source was given"):
        quickly([], tmp_path / "f.zip")


def test_redirects_are_followed_to_the_web_only(web: Web, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    good = web.serve("/from", b"", redirect=web.serve("/to/f.zip", DATA, break_after=[1_000_000]))
    quickly([good], tmp_path / "f.zip")
    assert (tmp_path / "f.zip").read_bytes() == DATA
    assert web.ranges("/to/f.zip") == [None, "bytes=1000000-"]
    for bad in (secret.as_uri(), "ftp://127.0.0.1/x", "data:text/plain,x"):
        with pytest.raises(FetchError, match=r"neither http nor https|not allowed"):
            quickly([web.serve("/bad", b"", redirect=bad)], tmp_path / "g.zip")
    assert names(tmp_path) == ["f.zip", "secret"]


@pytest.mark.parametrize(
    "source", ["file:///etc/passwd", "ftp://host/f", "http://me:secret@host/f", "/etc/passwd", ""]
)
def test_other_sources_are_refused_without_repeating_them(tmp_path: Path, source: str) -> None:
    with pytest.raises(FetchError, match="allowed are http://") as caught:
        quickly([source], tmp_path / "f.zip")
    assert "secret" not in str(caught.value)


def test_a_drive_id_has_two_addresses() -> None:
    assert addresses("drive:1JFr8f-x_Pd") == (
        "https://drive.google.com/uc?export=download&id=1JFr8f-x_Pd",
        "https://drive.usercontent.google.com/download?id=1JFr8f-x_Pd&confirm=t",
    )


def test_a_coding_that_was_not_asked_for_is_refused(web: Web, tmp_path: Path) -> None:
    how = {"headers": {"Content-Encoding": "gzip"}}
    with pytest.raises(FetchError, match="coding 'gzip'"):
        quickly([web.serve("/f.zip", DATA, **how)], tmp_path / "f.zip")
    quickly([web.serve("/f.tar.gz", DATA, **how)], tmp_path / "f.tar.gz")
    assert (tmp_path / "f.tar.gz").read_bytes() == DATA
    assert {headers["Accept-Encoding"] for _, headers in web.asked} == {"identity"}


def test_an_interrupt_keeps_the_part(web: Web, tmp_path: Path) -> None:
    def stop(done: int, total: int | None) -> None:
        if done > 1_000_000:
            raise KeyboardInterrupt

    url = web.serve("/f.zip", DATA)
    with pytest.raises(KeyboardInterrupt):
        quickly([url], tmp_path / "f.zip", progress=stop)
    kept = (tmp_path / "f.zip.part").stat().st_size
    assert kept > 1_000_000
    quickly([url], tmp_path / "f.zip")
    assert (tmp_path / "f.zip").read_bytes() == DATA
    assert web.ranges("/f.zip") == [None, f"bytes={kept}-"]


def test_after_kill_9_the_same_call_goes_on(web: Web, tmp_path: Path) -> None:
    url = web.serve("/f.zip", DATA, pause=0.02)
    code = "from pathlib import Path\nfrom genie_dg.data.published.fetch import fetch\n"
    code += f"fetch([{url!r}], Path('f.zip'))\n"
    part = tmp_path / "f.zip.part"
    with subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path) as child:
        wait_until(lambda: part.exists() and part.stat().st_size > 100_000, child)
        with pytest.raises(Busy, match=r"Another process \(.*\) fetches"):
            quickly([url], tmp_path / "f.zip")
        os.kill(child.pid, signal.SIGKILL)
    kept = part.stat().st_size
    web.files["/f.zip"].pause = 0
    quickly([url], tmp_path / "f.zip", sha256=hashlib.sha256(DATA).hexdigest())
    assert 100_000 < kept < len(DATA)
    assert web.ranges("/f.zip") == [None, f"bytes={kept}-"]
    assert names(tmp_path) == ["f.zip"]


def test_a_full_disk_is_a_sentence_and_keeps_the_part(web: Web, tmp_path: Path) -> None:
    url = web.serve("/f.zip", DATA)
    code = (
        "import resource\nfrom pathlib import Path\n"
        "from genie_dg.data.published.fetch import FetchError, fetch\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))  # the disk takes no more\n"
        f"try:\n    fetch([{url!r}], Path('f.zip'))\nexcept FetchError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "f.zip.part cannot be written: File too large; what was fetched is kept.\n", (
        done.stderr
    )
    kept = (tmp_path / "f.zip.part").stat().st_size
    assert kept > 0
    quickly([url], tmp_path / "f.zip")
    assert (tmp_path / "f.zip").read_bytes() == DATA
    assert web.ranges("/f.zip") == [None, f"bytes={kept}-"]
