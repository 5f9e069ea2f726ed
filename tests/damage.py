"""Every way in which a file can be wrong, from a seed: what `tests.test_damage` does to the files of runs."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

Damage = Callable[[Path, Random], None]

STRANGE: tuple[Any, ...] = (
    *(None, True, -1, 0, 1.5, 10**30, -(2**70), 1e308, "", "x" * 100_000, "NaN", "../../etc/passwd", [], {}),
    *([[]], [None], {"a": {}}, float("nan"), float("inf"), "\x00", "\ud800"),
)
"""Values that no file of a run holds where they are put."""


def cut(path: Path, random: Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: random.randrange(max(1, len(data)))])


def emptied(path: Path, random: Random) -> None:
    path.write_bytes(b"")


def flipped(path: Path, random: Random) -> None:
    _flip(path, random, 1)


def flipped_often(path: Path, random: Random) -> None:
    _flip(path, random, 50)


def _flip(path: Path, random: Random, bits: int) -> None:
    data = bytearray(path.read_bytes() or b"\0")
    for _ in range(bits):
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    path.write_bytes(data)


def other_digit(path: Path, random: Random) -> None:
    """A number that still looks like one: what no parser can see."""
    data = bytearray(path.read_bytes())
    digits = [k for k, byte in enumerate(data) if 48 <= byte < 57]
    if digits:
        data[random.choice(digits)] += 1
        path.write_bytes(data)
    else:
        _flip(path, random, 1)


def line_lost(path: Path, random: Random) -> None:
    lines = path.read_bytes().splitlines(keepends=True) or [b"x"]
    del lines[random.randrange(len(lines))]
    path.write_bytes(b"".join(lines))


def line_twice(path: Path, random: Random) -> None:
    lines = path.read_bytes().splitlines(keepends=True) or [b"{}\n"]
    lines.insert(0, random.choice(lines))
    path.write_bytes(b"".join(lines))


def strange_value(path: Path, random: Random) -> None:
    """A value of another type or size somewhere in the JSON of one line, or of the whole file."""
    text = path.read_bytes().decode("utf-8", "replace")
    lines = text.splitlines() if path.suffix == ".jsonl" else [text]
    at = random.randrange(len(lines)) if lines else 0
    try:
        data = json.loads(lines[at])
    except (ValueError, IndexError):
        data = {}
    changed = json.dumps(_with_strange(data, random))
    path.write_text("\n".join([*lines[:at], changed, *lines[at + 1 :]]) + "\n", encoding="utf-8")


def _with_strange(data: Any, random: Random) -> Any:
    inside = (
        list(data.items())
        if isinstance(data, dict)
        else list(enumerate(data))
        if isinstance(data, list)
        else []
    )
    if not inside or random.random() < 0.2:
        return random.choice(STRANGE)
    key, value = random.choice(inside)
    data[key] = _with_strange(value, random)
    return data


def nested(path: Path, random: Random) -> None:
    path.write_bytes(random.choice((b"[", b'{"a":')) * 100_000)


def garbage(path: Path, random: Random) -> None:
    path.write_bytes(random.randbytes(random.choice((1, 100, 10_000))))


def zeros(path: Path, random: Random) -> None:
    path.write_bytes(bytes(len(path.read_bytes())))


def huge(path: Path, random: Random) -> None:
    os.truncate(path, random.choice((2**27, 2**33)))  # a hole: it takes no room


def missing(path: Path, random: Random) -> None:
    path.unlink()


def folder(path: Path, random: Random) -> None:
    path.unlink()
    path.mkdir()


def link_to_itself(path: Path, random: Random) -> None:
    path.unlink()
    path.symlink_to(path.name)


def link_to_nothing(path: Path, random: Random) -> None:
    path.unlink()
    path.symlink_to("nowhere/at all")


def link_to_zeros(path: Path, random: Random) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def pipe(path: Path, random: Random) -> None:
    path.unlink()
    os.mkfifo(path)


DAMAGES: dict[str, Damage] = {
    damage.__name__: damage
    for damage in (
        *(cut, emptied, flipped, flipped_often, other_digit, line_lost, line_twice, strange_value, nested),
        *(garbage, zeros, huge, missing, folder, link_to_itself, link_to_nothing, link_to_zeros, pipe),
    )
}


def restore(broken: Path, whole: Path) -> None:
    """Make a folder what it was."""
    if broken.is_symlink() or broken.is_file():
        broken.unlink()
    elif broken.exists():
        shutil.rmtree(broken)
    shutil.copytree(whole, broken, copy_function=_copied)


def _copied(source: str, target: str) -> None:
    """Large files, which are only ever replaced, are shared."""
    if source.endswith((".pt", ".u8", ".arrow", ".png")):
        os.link(source, target)
    else:
        shutil.copy2(source, target)


def unlink_from_whole(path: Path) -> None:
    """Make a shared file one of its own, so that it can be damaged."""
    data, status = path.read_bytes(), path.stat()
    path.unlink()
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
