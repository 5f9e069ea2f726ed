"""Read run folders, whatever state they are in, as columns of plain values; many of them on all cores."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from multiprocessing import get_context
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from genie_dg.check import InputError

from .decode import LISTS, OF_RUN, LeftOut, RunFolder
from .folder import CONFIG

FloatArray = NDArray[np.float64]
_T = TypeVar("_T")

_CHUNK = 250
"""Folders that are read together."""
_PARALLEL = 16 * _CHUNK
"""From so many folders on all cores read, where the system can fork."""


@dataclass
class RunColumns:
    """Some runs as columns.

    Args:
        runs: by name of `OF_RUN` one value a run.
        lists: by name of `LISTS` the numbers of all runs, one after the other.
        lengths: by name of `LISTS` how many numbers each run has.
        problems: a sentence for each file or line that cannot be read.
        damaged: the folders that these are about.
    """

    runs: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in OF_RUN})
    lists: dict[str, list[FloatArray]] = field(default_factory=lambda: {name: [] for name in LISTS})
    lengths: dict[str, list[int]] = field(default_factory=lambda: {name: [] for name in LISTS})
    problems: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)

    def extend(self, other: RunColumns) -> None:
        """Add other runs."""
        for name in OF_RUN:
            self.runs[name] += other.runs[name]
        for name in LISTS:
            self.lists[name] += other.lists[name]
            self.lengths[name] += other.lengths[name]
        self.problems += other.problems
        self.damaged += other.damaged


def run_folders(folder: str) -> list[str]:
    """The folders of runs in a folder, sorted; the folder itself when it is that of a run."""
    try:
        if os.path.exists(os.path.join(folder, CONFIG)):
            return [folder]
        with os.scandir(folder) as entries:
            return sorted(entry.path for entry in entries if entry.is_dir())
    except OSError as error:
        raise InputError(
            f"{folder} cannot be read ({error.strerror}); name a folder that holds the folders of runs."
        ) from error


def read_runs(folders: Sequence[str]) -> RunColumns:
    """The runs of some folders, in order."""
    columns = RunColumns()
    for part in in_parallel(_read_chunks, folders):
        columns.extend(part)
    return columns


def in_parallel(work: Callable[[Sequence[str]], list[_T]], folders: Sequence[str]) -> list[_T]:
    """Some work on many folders, on all cores: most of its time goes to files, found side by side.

    Few folders, or a system that cannot fork, are worked on here.
    """
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1
    if cores == 1 or len(folders) < _PARALLEL:
        return work(folders)
    size = -(-len(folders) // (4 * cores) // _CHUNK) * _CHUNK or _CHUNK
    chunks = [folders[at : at + size] for at in range(0, len(folders), size)]
    with ProcessPoolExecutor(cores, mp_context=get_context("fork")) as pool:
        return list(chain.from_iterable(pool.map(work, chunks)))


def _read_chunks(folders: Sequence[str]) -> list[RunColumns]:
    return [_read_chunk(folders[at : at + _CHUNK]) for at in range(0, len(folders), _CHUNK)]


def _read_chunk(folders: Sequence[str]) -> RunColumns:
    """The runs of some folders; their numbers become columns in one pass without a Python loop."""
    collecting = gc.isenabled()
    gc.disable()  # nothing here is a cycle; the collector would look at all records again and again
    try:
        columns = RunColumns()
        numbers: dict[str, list[list[Any]]] = {name: [] for name in LISTS}
        for path in folders:
            folder = RunFolder(path)
            try:
                folder.read(columns.runs, numbers)
            except LeftOut as error:
                folder.problems.append(f"{error}; the run is left out.")
            columns.problems += folder.problems
            columns.damaged += [path] * bool(folder.problems)
        for name, parts in numbers.items():
            flat = np.array(list(chain.from_iterable(parts)), dtype=np.float64)  # None becomes NaN
            columns.lists[name].append(flat)
            columns.lengths[name] += map(len, parts)
        return columns
    finally:
        if collecting:
            gc.enable()


def seconds(folder: str) -> dict[int, float]:
    """Seconds that each record of one run took, with the steps before it, by step."""
    return RunFolder(folder).times()
