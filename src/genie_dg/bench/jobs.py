"""From a job to a finished run, in this process."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from genie_dg.data.columns import Columns
from genie_dg.data.domains import DomainSet
from genie_dg.data.registry import open_data
from genie_dg.runs.record import Record
from genie_dg.runtime import keep_memory, same_kernels

from .assemble import Parts, assemble
from .options import Job, RunOptions
from .request import load_plugin
from .tracking import train_tracked
from .train import Report, train
from .watch import Watcher, check_watches


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
