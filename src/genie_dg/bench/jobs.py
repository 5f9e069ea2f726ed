"""From a job to a finished run, in this process."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass, field
from pathlib import Path

from genie_dg.data.columns import Columns
from genie_dg.data.domains import DomainSet
from genie_dg.data.registry import open_data
from genie_dg.runs.record import Record

from .assemble import Parts, assemble
from .options import Job, RunOptions
from .request import load_plugin
from .tracking import train_tracked
from .train import Report, same_kernels, train
from .watch import Watcher, check_watches

TRIM, TOP_PAD, MMAP_MAX = -1, -2, -4
"""Numbers of settings of glibc's ``mallopt``, from ``malloc.h``."""


def keep_memory() -> bool:
    """Let this process keep the memory that it frees; says whether that could be set.

    glibc gives every large tensor back to the system, and the next step waits for new pages: on a CPU a fifth
    of the time of a training step (`benchmarks/memory.py`). For processes that train and end, not for a
    library's caller: memory stays at its highest. Elsewhere than on glibc nothing is set.
    """
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    if mallopt is None:
        return False
    settings = ((TRIM, 2**31 - 1), (TOP_PAD, 2**26), (MMAP_MAX, 0))
    return all(mallopt(setting, value) == 1 for setting, value in settings)


@dataclass
class OpenSets:
    """Data sets that a process has opened and plugins that it has run; the next job finds them."""

    sets: dict[tuple[str, str, Columns], DomainSet] = field(default_factory=dict)
    plugins: set[str] = field(default_factory=set)

    def load_plugins(self, options: RunOptions) -> None:
        """Run the plugins that were not run yet."""
        for file in options.plugin:
            if file not in self.plugins:
                load_plugin(Path(file))
                self.plugins.add(file)

    def open(self, what: str, options: RunOptions) -> DomainSet:
        """A set by its name or path, where the options say that it is."""
        key = what, options.root, options.columns
        if key not in self.sets:
            self.sets[key] = open_data(what, options.root or None, options.columns)
        return self.sets[key]


def run_job(job: Job, opened: OpenSets, report: Report | None = None) -> list[Record]:
    """Train one job to its end, from its last checkpoint when there is one."""
    keep_memory()
    opened.load_plugins(job.options)
    with same_kernels(job.config.threads):  # what is drawn and decoded before the first step, too
        parts = assemble(job.config, opened.open(job.data, job.options), job.options)
        return run_parts(parts, job.folder, job.options, report)


def run_parts(
    parts: Parts, folder: Path, options: RunOptions, report: Report | None = None, more: bool = False
) -> list[Record]:
    """Train, with all that the options ask for besides; ``more`` as for `train`."""
    watches = check_watches(options.watches)
    watcher = Watcher(parts, folder, watches) if watches else None

    def work(report: Report | None) -> list[Record]:
        return train(parts, folder, report, options.keep, more, watcher)

    return train_tracked(parts, folder, options, work, report)
