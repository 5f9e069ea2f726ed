"""The cache: exact, keyed by content, and never wrong, whoever is killed while it is built."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from genie_dg.data.cache import (
    Cache,
    EvalSpec,
    Spec,
    TrainSpec,
    cache_root,
    open_cache,
)
from genie_dg.data.domains import DataError, FileDomain
from genie_dg.data.image_folders import DataWarning, open_folder
from tests.data.pictures import KINDS, folder, write

SPECS: list[Spec] = [EvalSpec(32), TrainSpec(34)]


def domain_of(root: Path, each: int = 12) -> FileDomain:
    found = open_folder(folder(root, each=each)).domains[0]
    assert isinstance(found, FileDomain)
    return found


def assert_right(cache: Cache, domain: FileDomain, spec: Spec) -> None:
    assert len(cache) == len(domain)
    for i in range(len(domain)):
        picture = domain.read(i)
        assert np.array_equal(cache.row(i), spec.pixels(picture)), i
        assert tuple(cache.originals[i]) == (picture.height, picture.width)


@pytest.mark.parametrize("spec", SPECS, ids=repr)
def test_rows_are_the_pictures(tmp_path: Path, spec: Spec) -> None:
    domain = domain_of(tmp_path / "set")
    done: list[int] = []
    cache = open_cache(domain, spec, tmp_path / "cache", done.append)
    assert_right(cache, domain, spec)
    assert sum(done) == len(domain)
    again = open_cache(domain, spec, tmp_path / "cache")
    assert again.path == cache.path


def test_a_training_cache_is_exact_below_its_limit(tmp_path: Path) -> None:
    domain = domain_of(tmp_path / "set")
    exact = open_cache(domain, TrainSpec(64), tmp_path / "cache")
    assert all(np.array_equal(exact.row(i), np.asarray(domain.read(i))) for i in range(len(domain)))
    small = open_cache(domain, TrainSpec(20), tmp_path / "cache")
    assert all(min(small.row(i).shape[:2]) == 20 for i in range(len(domain)))


def test_every_kind_of_picture(tmp_path: Path) -> None:
    for i, (name, mode) in enumerate(KINDS):
        write(tmp_path / "set" / "d" / "c" / name, i, mode)
    with pytest.warns(DataWarning):
        domain = open_folder(tmp_path / "set").domains[0]
    assert isinstance(domain, FileDomain)
    for spec in SPECS:
        assert_right(open_cache(domain, spec, tmp_path / "cache"), domain, spec)


def test_a_changed_picture_makes_another_cache(tmp_path: Path) -> None:
    domain = domain_of(tmp_path / "set")
    old = open_cache(domain, EvalSpec(32), tmp_path / "cache")
    before = old.row(3).copy()
    write(Path(domain.where(3)), 999, height=33, width=36)
    new = open_cache(domain, EvalSpec(32), tmp_path / "cache")
    assert new.path != old.path
    assert_right(new, domain, EvalSpec(32))
    assert np.array_equal(old.row(3), before)  # a run that still uses the old one keeps its pixels


BUILD = """
import sys
from genie_dg.data.cache import EvalSpec, TrainSpec, open_cache
from genie_dg.data.image_folders import open_folder
domain = open_folder(sys.argv[1]).domains[0]
spec = EvalSpec(96) if sys.argv[3] == "eval" else TrainSpec(64)
print("ready", flush=True)
open_cache(domain, spec, sys.argv[2], lambda done: print("built", flush=True))
"""


def start(root: Path, cache: Path, kind: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", BUILD, str(root), str(cache), kind],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("kind", ["eval", "train"])
@pytest.mark.parametrize("blocks", [0, 1, 3])
def test_a_build_that_was_killed_is_never_read_as_whole(tmp_path: Path, kind: str, blocks: int) -> None:
    """SIGKILL after so many blocks were written: the next call builds the whole."""
    domain = domain_of(tmp_path / "set", each=100)
    spec: Spec = EvalSpec(96) if kind == "eval" else TrainSpec(64)
    with start(tmp_path / "set", tmp_path / "cache", kind) as process:
        assert process.stdout is not None
        for _ in range(1 + blocks):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    assert not list(tmp_path.glob("cache/*/complete.json"))
    assert_right(open_cache(domain, spec, tmp_path / "cache"), domain, spec)


def test_two_processes_build_one_cache(tmp_path: Path) -> None:
    domain = domain_of(tmp_path / "set", each=120)
    pair = [start(tmp_path / "set", tmp_path / "cache", "eval") for _ in range(2)]
    outcomes = [process.communicate(timeout=120) for process in pair]
    assert [process.returncode for process in pair] == [0, 0], outcomes
    assert len(list((tmp_path / "cache").glob("*/complete.json"))) == 1
    assert_right(open_cache(domain, EvalSpec(96), tmp_path / "cache"), domain, EvalSpec(96))


def test_a_corrupt_picture_is_named_and_nothing_is_lost(tmp_path: Path) -> None:
    domain = domain_of(tmp_path / "set", each=60)
    broken = Path(domain.where(100))
    good = broken.read_bytes()
    broken.write_bytes(good[: len(good) // 2])  # the header is fine, the pixels end too early
    with pytest.raises(DataError, match=rf"{broken.name} cannot be decoded as a picture"):
        open_cache(domain, EvalSpec(32), tmp_path / "cache")
    broken.write_bytes(b"")
    with pytest.raises(DataError, match=rf"{broken.name} is empty"):
        open_cache(domain, EvalSpec(32), tmp_path / "cache")
    broken.write_bytes(good)
    assert_right(open_cache(domain, EvalSpec(32), tmp_path / "cache"), domain, EvalSpec(32))


def test_damage_is_seen(tmp_path: Path) -> None:
    domain = domain_of(tmp_path / "set", each=40)
    cache = open_cache(domain, EvalSpec(32), tmp_path / "cache")
    with (cache.path / "pixels.u8").open("r+b") as file:
        file.seek(int(cache.offsets[40]))
        file.write(b"\x00\x01\x02" * 9)
    again = open_cache(domain, EvalSpec(32), tmp_path / "cache")
    again.row(39)
    with pytest.raises(DataError, match="picture 40 was changed"):
        again.row(40)
    facts = (cache.path / "complete.json").read_text()
    for wrong in ("{", "[]", "{}", facts.replace('"checksums": [', '"checksums": [7, ')):
        (cache.path / "complete.json").write_text(wrong)
        with pytest.raises(DataError, match="is damaged"):
            open_cache(domain, EvalSpec(32), tmp_path / "cache")
    (cache.path / "complete.json").write_text(facts)
    os.truncate(cache.path / "pixels.u8", 100)
    with pytest.raises(DataError, match="is damaged"):
        open_cache(domain, EvalSpec(32), tmp_path / "cache")


LIMITED = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from genie_dg.data.cache import EvalSpec, open_cache
from genie_dg.data.image_folders import open_folder
from genie_dg.files import FileError
domain = open_folder(sys.argv[1]).domains[0]
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), resource.RLIM_INFINITY))
try:
    open_cache(domain, EvalSpec(64), sys.argv[2])
except FileError as error:
    print(error)
"""


def test_a_full_disk_gets_one_sentence(tmp_path: Path) -> None:
    """A real limit of the system on the size of files stands for the full disk."""
    domain = domain_of(tmp_path / "set", each=60)
    command = [sys.executable, "-c", LIMITED, str(tmp_path / "set"), str(tmp_path / "cache"), "300000"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert "cannot be written (File too large)" in done.stdout
    assert_right(open_cache(domain, EvalSpec(64), tmp_path / "cache"), domain, EvalSpec(64))


def test_where_caches_live(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert cache_root(tmp_path) == tmp_path
    monkeypatch.setenv("GENIE_DG_CACHE", str(tmp_path / "a"))
    assert cache_root() == tmp_path / "a"
    monkeypatch.delenv("GENIE_DG_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "b"))
    assert cache_root() == tmp_path / "b" / "genie-dg"
