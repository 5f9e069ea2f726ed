"""Files that are written whole, lines of JSON that may be torn, and locks between processes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genie_dg.files import (
    Busy,
    FileError,
    append_line,
    beating,
    held_by,
    holder_file,
    json_line,
    lock,
    read_lines,
    remove_parts,
    silence,
    write_whole,
)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


# Written whole


def test_a_file_that_cannot_be_written_keeps_its_contents(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    (tmp_path / f"a.{os.getpid()}.part").mkdir()  # where the new contents would go first
    with pytest.raises(FileError, match=r"a cannot be written \(Is a directory\); free some space and start"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    with pytest.raises(FileError, match=r"missing/a cannot be written \(No such file or directory\)"):
        write_whole(tmp_path / "missing" / "a", b"new")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full")
def test_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / f"a.{os.getpid()}.part").symlink_to("/dev/full")
    with pytest.raises(
        FileError, match=r"a cannot be written \(No space left on device\); .* nothing that was saved"
    ):
        write_whole(tmp_path / "a", b"new")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "lines").symlink_to("/dev/full")
    with pytest.raises(FileError, match=r"lines cannot be written \(.*\); free some space and start the same"):
        append_line(tmp_path / "lines", {"a": 1})


def test_readers_see_the_old_contents_or_the_new_ones(tmp_path: Path) -> None:
    path, size, stop, seen = tmp_path / "a", 200_000, threading.Event(), set[bytes]()
    write_whole(path, b"0" * size)

    def look() -> None:
        while not stop.is_set():
            data = path.read_bytes()
            seen.add(data[:1] if data == data[:1] * size else b"torn")

    reader = threading.Thread(target=look)
    reader.start()
    try:
        for k in range(1, 30):
            write_whole(path, str(k % 10).encode() * size)
    finally:
        stop.set()
        reader.join()
    assert b"torn" not in seen


def test_a_process_that_is_killed_while_it_writes_leaves_the_old_contents(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom genie_dg.files import write_whole\n"
        "print('begun', flush=True)\nk = 0\n"
        "while True:\n    k += 1\n    write_whole(Path(sys.argv[1]), str(k % 10).encode() * 100_000)\n"
    )
    path = tmp_path / "a"
    write_whole(path, b"0" * 100_000)
    child = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    wait_until(lambda: path.read_bytes()[:1] == b"7")
    child.kill()
    child.wait()
    child.stdout.close()
    data = path.read_bytes()
    assert data == data[:1] * 100_000
    remove_parts(tmp_path)
    assert list(tmp_path.iterdir()) == [path]


# Lines


def test_lines_come_back(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    assert read_lines(path) == ([], [])
    objects: list[dict[str, Any]] = [{"a": 1}, {"text": "zwei\nZeilen"}, {}]
    for one in objects:
        append_line(path, one)
    assert read_lines(path) == read_lines(str(path)) == (objects, [])
    assert read_lines(path, 2) == (objects[:2], [])
    assert read_lines(path, 0) == ([], [])
    assert read_lines(path / "below") == ([], [])


@given(st.binary(max_size=60) | st.text(max_size=40).map(str.encode), st.integers(0, 80))
@settings(max_examples=100)
def test_a_torn_line_loses_only_itself(tmp_path_factory: pytest.TempPathFactory, junk: bytes, cut: int) -> None:
    path = tmp_path_factory.mktemp("torn") / "lines"
    append_line(path, {"step": 0, "loss": 0.5})
    whole = json_line({"step": 1, "loss": 0.25}).encode()
    with path.open("ab") as file:
        file.write(whole[:cut] if cut < len(whole) else junk)
    append_line(path, {"step": 2})
    objects, problems = read_lines(path)
    assert objects[0] == {"step": 0, "loss": 0.5}
    assert objects[-1] == {"step": 2}
    for problem in problems:
        assert f" of {path} is not a JSON object (" in problem
        assert problem.endswith("); it is left out.")


@pytest.mark.parametrize("line", [b"{", b"[1]", b"1", b"null", b'"x"', b"\xff\xfe", b"[" * 100_000, b"{}x"])
def test_lines_that_are_no_objects_are_named_by_number(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b'{"a": 1}\n\n' + line + b'\n{"a": 2}\n')
    objects, (problem,) = read_lines(path)
    assert objects == [{"a": 1}, {"a": 2}]
    assert problem.startswith(f"Line 3 of {path} is not a JSON object (")
    assert read_lines(path, 2) == ([{"a": 1}], [])


# Locks

HOLD = (
    "import sys\nfrom pathlib import Path\nfrom genie_dg.files import lock\n"
    "with lock(Path(sys.argv[1]), 'works'):\n    print('held', flush=True)\n    sys.stdin.readline()\n"
)


@contextmanager
def another_process(path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds a lock until it gets a line, or is killed."""
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == "held\n"
        yield child
    finally:
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()


def test_a_lock_keeps_other_processes_out(tmp_path: Path) -> None:
    path = tmp_path / "new" / "lock"
    assert not held_by(path)
    assert not path.exists()
    with another_process(path) as child:
        assert held_by(path)
        name, since = re.escape(socket.gethostname()), r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
        words = (
            rf"^Another process \(process {child.pid} on {name}, since {since}\) trains ab12 right now; wait "
        )
        with pytest.raises(Busy, match=words), lock(path, "trains ab12"):
            pass
        child.communicate("\n")
        assert child.returncode == 0
    assert not held_by(path)
    assert path.exists()  # removing it would let two processes hold two files of one name
    with lock(path, "works"):
        assert held_by(path)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_lock_ends_with_its_process(tmp_path: Path, how: signal.Signals) -> None:
    path = tmp_path / "lock"
    with another_process(path) as child:
        assert held_by(path)
        child.send_signal(how)
        child.wait()
        assert not held_by(path)


def test_who_holds_a_lock_is_looked_up_without_taking_it(tmp_path: Path) -> None:
    """Two threads look all the time, and not once is the lock refused to the process that wants it."""
    path, stop = tmp_path / "lock", threading.Event()
    seen: set[bool] = set()

    def look() -> None:
        while not stop.is_set():
            seen.add(held_by(path) is not None)

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(100):
            with lock(path, "works"):
                pass
        with lock(path, "works"):
            wait_until(lambda: True in seen)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert seen == {True, False}
    assert [file.name for file in tmp_path.iterdir()] == ["lock"]


def test_what_the_file_of_a_holder_says_is_believed_of_other_machines_only(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with lock(path, "works"):
        mine = json.loads(holder_file(path).read_text())
        holder = held_by(path)
    assert (mine["pid"], mine["host"]) == (os.getpid(), socket.gethostname())
    assert holder is not None
    assert holder.here
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    for change, held in [
        ({}, True),
        ({"pid": dead.pid}, False),
        ({"pid": 2**70}, False),
        ({"born": "1"}, False),  # a later process has the number of one that is gone
        ({"host": "elsewhere"}, True),
        ({"pid": "x"}, False),
    ]:
        holder_file(path).write_text(json.dumps({**mine, **change}))
        assert (held_by(path) is not None) == held, change
    holder_file(path).write_text(json.dumps({**mine, "host": "elsewhere"}))
    elsewhere = held_by(path)
    assert elsewhere is not None
    assert not elsewhere.here
    for text in ("", "[]", "{", "null"):
        holder_file(path).write_text(text)
        assert held_by(path) is None


def test_nothing_is_written_into_a_folder_whose_lock_was_removed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    words = (
        r"run was removed while this process worked there; it stops here, and the same command starts again\.$"
    )
    with lock(folder / "lock", "works"):
        write_whole(folder / "a", b"1")
        append_line(folder / "b", {"x": 1})
        shutil.rmtree(folder)
        with pytest.raises(FileError, match=words):
            write_whole(folder / "a", b"2")
    with lock(folder / "lock", "works"):
        shutil.rmtree(folder)
        with another_process(folder / "lock"):
            for write in (lambda: write_whole(folder / "a", b"2"), lambda: append_line(folder / "b", {"x": 2})):
                with pytest.raises(FileError, match=words):
                    write()
            assert sorted(path.name for path in folder.iterdir()) == ["lock", "lock.holder"]
    write_whole(folder / "a", b"3")


def test_a_lock_can_be_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with another_process(path) as child:
        began = time.monotonic()
        with pytest.raises(Busy), lock(path, "works", wait=0.2):
            pass
        assert time.monotonic() - began >= 0.2
        threading.Timer(0.2, child.kill).start()
        with lock(path, "works", wait=-1):
            assert child.wait() != 0


def test_a_holder_gives_signs_of_life_while_it_holds_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert silence(path) == float("inf")
    holder_file(path).write_text("{}")  # of a process that was killed
    with beating(path, every=0.01), lock(path, "trains"):
        os.utime(holder_file(path), (time.time() - 100,) * 2)
        wait_until(lambda: silence(path) < 50)
