"""The paths that a job names, for processes that start in another folder or on another machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from genie_dg.data.registry import SETS

from ..options import Job

FIELDS = ("out", "root", "cache", "weights")
"""The options that are paths, besides the plugins."""


def with_whole_paths(job: Job) -> Job:
    """The job with absolute paths, since a worker's folder is not this process's."""

    def whole(path: str) -> str:
        return str(Path(path).absolute()) if path else ""

    data = whole(job.data) if job.data not in SETS and Path(job.data).exists() else job.data
    places = {name: whole(getattr(job.options, name)) for name in FIELDS}
    plugin = tuple(whole(file) for file in job.options.plugin)
    return replace(job, data=data).changed(**places, plugin=plugin)


def paths_of(job: Job) -> list[Path]:
    """What a job with whole paths reads and writes."""
    named = [getattr(job.options, name) for name in FIELDS] + list(job.options.plugin)
    data = [] if job.data in SETS else [job.data]
    return [Path(path) for path in (*named, *data) if path]
