"""A job: one run of a sweep and where it happens, as plain data that any process can be given."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from genie_dg.data.domains import DomainSet
from genie_dg.runs import folder as disk
from genie_dg.runs.record import RunConfig, canonical, from_mapping

Report = Callable[[int, dict[str, Any] | None], None]


@dataclass(frozen=True)
class Job:
    """One run.

    Args:
        config: what is trained.
        data: what `open_data` is given: the name of a set, or a path.
        out: the folder of runs.
        root: for published sets, the folder that holds them.
        cache: the folder for decoded pictures.
        device: where tensors live.
        threads: that torch may use; 0 leaves it alone.
        plugins: files that register rows.
        tensorboard: also write TensorBoard's files into the run's folder.
        watch: what else is measured at every record; see `genie_dg.bench.watch`.
    """

    config: RunConfig
    data: str
    out: str
    root: str = ""
    cache: str = ""
    device: str = "cpu"
    threads: int = 0
    plugins: tuple[str, ...] = ()
    tensorboard: bool = False
    watch: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        return Path(self.out) / self.config.run_id

    @property
    def done(self) -> bool:
        return (self.folder / disk.DONE).exists()

    def to_json(self) -> str:
        """One line; `from_json` reads it."""
        return json.dumps({**asdict(self), "config": json.loads(canonical(self.config))})

    def on(self, device: str, threads: int) -> Job:
        """The same job on a device, with some threads."""
        return replace(self, device=device, threads=threads)


def from_json(text: str | bytes) -> Job:
    """The job that `Job.to_json` wrote.

    >>> job = Job(RunConfig("digits", (0,)), "digits", "runs", threads=1)
    >>> from_json(job.to_json()) == job
    True
    """
    found = json.loads(text)
    found["config"] = from_mapping(found["config"])
    found["plugins"], found["watch"] = tuple(found["plugins"]), tuple(found["watch"])
    return Job(**found)


@dataclass
class Shelf:
    """Data sets that a process has opened; the next job finds them open."""

    sets: dict[tuple[str, str], DomainSet] = field(default_factory=dict)
    plugins: set[str] = field(default_factory=set)

    def plug(self, files: tuple[str, ...]) -> None:
        """Run the plugins that were not run yet."""
        from .request import load_plugin

        for file in files:
            if file not in self.plugins:
                load_plugin(Path(file))
                self.plugins.add(file)

    def open(self, what: str, root: str) -> DomainSet:
        from genie_dg.data.registry import open_data

        if (what, root) not in self.sets:
            self.sets[what, root] = open_data(what, root or None)
        return self.sets[what, root]


def run_job(job: Job, shelf: Shelf, report: Report | None = None) -> list[dict[str, Any]]:
    """Train one job to its end, from its last checkpoint when there is one."""
    import torch

    from .assemble import Places, assemble
    from .train import train

    if job.threads:
        torch.set_num_threads(job.threads)
    shelf.plug(job.plugins)
    data = shelf.open(job.data, job.root)
    parts = assemble(job.config, data, Places(job.device, Path(job.cache) if job.cache else None))
    if job.watch:
        from .watch import watching

        report = watching(parts, job.folder, job.watch, report)
    if not job.tensorboard:
        return train(parts, job.folder, report)
    from .tensorboard import logging_to

    with logging_to(job.folder, parts, report) as logged:
        return train(parts, job.folder, logged)
