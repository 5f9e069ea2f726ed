"""The C files of this package as libraries: built by the system's C compiler at their first use, and kept.

The compiler is ``$CC``, else cc, gcc or clang. A library is kept in ``$XDG_CACHE_HOME/genie-dg/native``
(``~/.cache`` without the variable), for its source, compiler, flags and processor. Without a compiler, or with
the environment variable ``GENIE_DG_NATIVE=0``, there are none, and whoever asks for one does its work without.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

_T = TypeVar("_T")
_Bind = Callable[[ctypes.CDLL], _T]
"""Takes the functions out of a library; an AttributeError says that one is missing."""

_ALWAYS = ("-O2", "-fPIC", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi")
_ATTEMPTS = (  # flags to compile, flags to link; OpenMP not linked is that of torch, with its threads
    (("-march=native", "-fopenmp"), ()),
    (("-march=native", "-fopenmp"), ("-fopenmp",)),
    (("-fopenmp",), ("-fopenmp",)),
    (("-march=native",), ()),
    ((), ()),
)


def load_library(source: Path, bind: _Bind[_T], flags: tuple[str, ...] = ()) -> _T | None:
    """The functions of a C file, built if need be; None where they cannot be had.

    ``flags`` are given to the compiler after those that all files get.
    """
    compiler = _compiler()
    if compiler is None or os.name != "posix" or os.environ.get("GENIE_DG_NATIVE") == "0":
        return None
    try:
        folder = library_folder()
        folder.mkdir(parents=True, exist_ok=True)
        key = _key(source, compiler, flags)
        for path in sorted(folder.glob(f"{key}-*.so")):
            functions = _load(path, bind) if _is_intact(path) else None
            if functions is not None:
                return functions
        return _build(source, bind, (compiler, flags), folder, folder / key)
    except (OSError, RuntimeError):  # no home, or a folder that cannot be written
        return _build(source, bind, (compiler, flags), None, None)


def library_folder() -> Path:
    """Where libraries are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "genie-dg" / "native"


def _compiler() -> tuple[str, ...] | None:
    """The command of the C compiler."""
    named = shlex.split(os.environ.get("CC", ""))
    for words in (named, ["cc"], ["gcc"], ["clang"]):
        program = shutil.which(words[0]) if words else None
        if program is not None:
            return (program, *words[1:])
    return None


def _key(source: Path, compiler: tuple[str, ...], flags: tuple[str, ...] = ()) -> str:
    """Names what a library was made from: source, compiler, flags and processor."""
    program = Path(compiler[0]).resolve()
    parts = [
        source.read_text(),
        *compiler,
        program,
        program.stat().st_mtime_ns,
        (*_ALWAYS, *flags),
        _ATTEMPTS,
        *_processor(),
    ]
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:16]


def _processor() -> Iterator[str]:
    yield from (platform.system(), platform.machine(), platform.processor())
    try:
        lines = Path("/proc/cpuinfo").read_text().partition("\n\n")[0].splitlines()
    except OSError:
        return
    yield from (line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part")))


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _is_intact(path: Path) -> bool:
    """True if the file is the user's own and its bytes are those its name was made from."""
    try:
        return path.stat().st_uid == os.getuid() and path.stem.endswith(f"-{_digest(path)}")
    except OSError:
        return False


def _load(path: Path, bind: _Bind[_T]) -> _T | None:
    try:
        return bind(ctypes.CDLL(str(path)))
    except (OSError, AttributeError):
        return None


def _build(
    source: Path,
    bind: _Bind[_T],
    command: tuple[tuple[str, ...], tuple[str, ...]],
    folder: Path | None,
    keep: Path | None,
) -> _T | None:
    """Compile with the first flags that work, load_library, and keep the file under ``keep`` and its digest."""
    compiler, flags = command
    with tempfile.TemporaryDirectory(prefix="genie-dg-", dir=folder) as work:
        part, whole = str(Path(work, "part.o")), Path(work, "whole.so")
        for compile_flags, link_flags in _ATTEMPTS:
            compiled = _run([*compiler, *_ALWAYS, *flags, *compile_flags, "-c", str(source), "-o", part])
            if not compiled or not _run([*compiler, "-shared", *link_flags, part, "-o", str(whole), "-lm"]):
                continue
            path = whole
            if keep is not None:
                path = whole.replace(keep.with_name(f"{keep.name}-{_digest(whole)}.so"))
            functions = _load(path, bind)  # a loaded file may be deleted
            if functions is not None:
                return functions
            path.unlink()
    return None


def _run(command: list[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
