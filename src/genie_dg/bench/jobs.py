"""From a job to a finished run, in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from genie_dg.data.columns import Columns
from genie_dg.data.domains import DomainSet
from genie_dg.data.registry import open_data
from genie_dg.files import Busy
from genie_dg.runs.folder import is_done, note_launch
from genie_dg.runs.outcome import outcome_of, recorded
from genie_dg.runs.record import Record
from genie_dg.runtime import keep_memory, same_kernels

from .assemble import Parts, assemble
from .checkpoint import go_on
from .engines.engine import Tell, Update
from .options import Job, RunOptions
from .request import load_plugin
from .status import RunState
from .trackers.tracker import check_trackers
from .tracking import train_tracked
from .train import Report, train
from .watch import Watcher, check_watches

_PAUSE = 0.2
"""Seconds between two reports of progress."""


@dataclass
class OpenSets:
    """Data sets that a process has opened; the next job finds them."""

    sets: dict[tuple[str, str, Columns], DomainSet] = field(default_factory=dict)

    def load_plugins(self, options: RunOptions) -> None:
        """Run the plugins that were not run yet."""
        for file in options.plugin:
            load_plugin(Path(file))

    def open(self, what: str, options: RunOptions) -> DomainSet:
        """A set by its name or path, where the options say that it is."""
        key = what, options.root, options.columns
        if key not in self.sets:
            self.sets[key] = open_data(what, options.root or None, options.columns)
        return self.sets[key]


def attempt(job: Job, opened: OpenSets, tell: Tell) -> Update:
    """Try to train one job in this process, for an engine; only Ctrl-C is raised, other ends are returned.

    Args:
        job: what to train.
        opened: what this process has opened.
        tell: called at the start, at every record, and now and then between.
    """
    run, last = job.config.run_id, time.monotonic()

    def report(done: int, record: Record | None) -> None:
        nonlocal last
        if record is not None or time.monotonic() - last > _PAUSE:
            last = time.monotonic()
            tell(Update(run, RunState.running, done))

    tell(Update(run, RunState.running))
    try:
        run_job(job, opened, report)
    except Busy:
        return Update(run, RunState.stopped)
    except Exception as error:  # whatever it is, it becomes a line of the sweep's report
        return Update(run, RunState.failed, outcome=outcome_of(error))
    return Update(run, RunState.done, job.config.steps)


def run_job(job: Job, opened: OpenSets, report: Report | None = None, cluster_job: str = "") -> list[Record]:
    """Train one job to its end, from its last checkpoint when there is one, and note how that ended."""
    keep_memory()
    _check_options(job.options)
    with recorded(job.folder, cluster_job), same_kernels(job.config.threads):  # drawing and decoding, too
        opened.load_plugins(job.options)
        parts = assemble(job.config, opened.open(job.data, job.options), job.options)
        return _train_parts(parts, job.folder, job.options, report)


def run_typed(
    parts: Parts,
    folder: Path,
    options: RunOptions,
    command: Sequence[str],
    say: Callable[[str], None],
    report: Report,
) -> list[Record]:
    """Train a run that somebody typed, and note how that ended.

    It goes on from a finished shorter one where there is one, and leaves what a longer one can go on from,
    unless no weights are kept.

    Args:
        parts: of the run.
        folder: of the run.
        options: how and where it happens.
        command: the words that were typed.
        say: called with a sentence where the run goes on from a shorter one.
        report: called after every step.
    """
    _check_options(options)
    more = options.keep != "none"
    if parts.world.first and not is_done(folder):
        if more and (note := go_on(parts.config, folder, options.keep)):
            say(note)
        note_launch(folder, command)
    with recorded(folder) if parts.world.first else nullcontext():
        return _train_parts(parts, folder, options, report, more)


def _check_options(options: RunOptions) -> None:
    """Refuse what no run can do; that is no attempt and leaves no folder."""
    check_watches(options.watches)
    check_trackers(options.tracks)


def _train_parts(
    parts: Parts, folder: Path, options: RunOptions, report: Report | None, more: bool = False
) -> list[Record]:
    watcher = Watcher(parts, folder, options.watches) if options.watches else None

    def work(report: Report | None) -> list[Record]:
        return train(parts, folder, report, options.keep, more, watcher)

    return train_tracked(parts, folder, options, work, report)
