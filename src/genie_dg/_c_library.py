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
    command = (*compiler, *_ALWAYS, *flags)
    try:
        folder = _library_folder()
        folder.mkdir(parents=True, exist_ok=True)
        kept = folder / f"{_key(source, command)}.so"
        functions = _load(kept, bind) if kept.is_file() and kept.stat().st_uid == os.getuid() else None
        return _build(source, bind, command, kept) if functions is None else functions
    except (OSError, RuntimeError):  # no home, or a folder that cannot be written
        return _build(source, bind, command, None)


def _library_folder() -> Path:
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


def _key(source: Path, command: tuple[str, ...]) -> str:
    """Names what a library was made from: source, compiler, flags and processor."""
    program = Path(command[0]).resolve()
    parts = [source.read_text(), *command, program, program.stat().st_mtime_ns, _ATTEMPTS, *_processor()]
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:16]


def _processor() -> Iterator[str]:
    yield from (platform.system(), platform.machine(), platform.processor())
    try:
        lines = Path("/proc/cpuinfo").read_text().partition("\n\n")[0].splitlines()
    except OSError:
        return
    yield from (line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part")))


def _load(path: Path, bind: _Bind[_T]) -> _T | None:
    try:
        return bind(ctypes.CDLL(str(path)))
    except (OSError, AttributeError):
        return None


def _build(source: Path, bind: _Bind[_T], command: tuple[str, ...], keep: Path | None) -> _T | None:
    """Compile with the first flags that work, load, and keep the file, whole or not at all, under ``keep``."""
    with tempfile.TemporaryDirectory(prefix="genie-dg-", dir=None if keep is None else keep.parent) as work:
        part, whole = str(Path(work, "part.o")), Path(work, "whole.so")
        for compile_flags, link_flags in _ATTEMPTS:
            if not _run([*command, *compile_flags, "-c", str(source), "-o", part]):
                continue
            linked = _run([*command, "-shared", *link_flags, part, "-o", str(whole), "-lm"])
            functions = _load(whole, bind) if linked else None
            if functions is not None:
                if keep is not None:
                    whole.replace(keep)
                return functions
    return None


def _run(command: list[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
