"""How and where runs happen, as one record from the command line to the process that trains.

Nothing here changes the science, so nothing here is part of a run's identity. The flags of ``genie-dg train``
and ``genie-dg sweep`` are made from the fields.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from genie_dg.check import one_of
from genie_dg.runs import folder as files
from genie_dg.runs.record import RunConfig, canonical, from_mapping

BOTH = ("train", "sweep")
ALL = (*BOTH, "diwa")
EVALUATE = ("used", "all")
"""Which parts of domains are evaluated: what selection, tables and the report read (the held-back parts of the
training domains, both parts of the test domains), or every part, as DomainBed does."""


def option(default: Any, text: str, verbs: tuple[str, ...] = BOTH, **flag: Any) -> Any:
    """A field of `RunOptions` and its flag.

    Args:
        default: when the flag is not given.
        text: for ``--help``; empty for a field without a flag.
        verbs: which commands have it.
        flag: what else argparse is told, such as ``metavar``.
    """
    return field(default=default, metadata={"help": text, "verbs": verbs, "flag": flag})


@dataclass(frozen=True)
class RunOptions:
    """How and where runs happen; the fields are explained by their flags."""

    out: str = option("runs", "the folder of runs", ALL, metavar="FOLDER")
    root: str = option("", "for published sets, the folder that holds them", ALL, metavar="FOLDER")
    cache: str = option("", "decode pictures once into this folder", ALL, metavar="FOLDER")
    weights: str = option("", "a local file of pretrained weights", ("train",), metavar="FILE")
    device: str = option("", "cpu, cuda or mps (default: cuda where there is one)", ALL)
    evaluate: str = option("used", "used: the parts of domains that selection and tables read; all: every part")
    watch: str = option("", "also measure updates, osgr, or updates,osgr")
    tensorboard: bool = option(False, "also write TensorBoard's files")
    plugin: tuple[str, ...] = option((), "a Python file that registers your own rows", ALL, metavar="FILE")

    def __post_init__(self) -> None:
        one_of("evaluate", self.evaluate, EVALUATE)

    @property
    def watches(self) -> tuple[str, ...]:
        """What is measured besides the records."""
        return tuple(word.strip() for word in self.watch.split(",") if word.strip())


def add_flags(parser: argparse.ArgumentParser, verb: str) -> None:
    """Give a command the flags of its options."""
    for one in fields(RunOptions):
        text, flag = one.metadata["help"], dict(one.metadata["flag"])
        if verb not in one.metadata["verbs"]:
            continue
        if isinstance(one.default, bool):
            flag["action"] = "store_true"
        elif isinstance(one.default, tuple):
            flag |= {"action": "append", "default": []}
            text += "; may be given several times"
        else:
            flag |= {"default": one.default, "type": type(one.default)}
            text += f" (default: {one.default})" if one.default not in ("", 0) else ""
        parser.add_argument(f"--{one.name.replace('_', '-')}", help=text, **flag)


def options_from(arguments: argparse.Namespace) -> RunOptions:
    """The options that were typed; plugins with whole paths, for processes that start elsewhere."""
    values = {one.name: getattr(arguments, one.name) for one in fields(RunOptions) if one.name in arguments}
    values["plugin"] = tuple(str(Path(file).resolve()) for file in values.get("plugin", ()))
    return RunOptions(**values)


@dataclass(frozen=True)
class Job:
    """One run of a sweep, as plain data that any process can be given.

    Args:
        config: what is trained.
        data: what `open_data` is given: the name of a set, or a path.
        options: how and where.
    """

    config: RunConfig
    data: str
    options: RunOptions = RunOptions()  # frozen

    @property
    def folder(self) -> Path:
        return Path(self.options.out) / self.config.run_id

    @property
    def done(self) -> bool:
        return (self.folder / files.DONE).exists()

    def to_json(self) -> str:
        """One line; `job_from` reads it."""
        return json.dumps({**asdict(self), "config": json.loads(canonical(self.config))})

    def changed(self, **options: Any) -> Job:
        """The same job with some other options."""
        return replace(self, options=replace(self.options, **options))


def job_from(text: str | bytes) -> Job:
    """The job that `Job.to_json` wrote.

    >>> job = Job(RunConfig("digits", (0,)), "digits", RunOptions(watch="osgr"))
    >>> job_from(job.to_json()) == job
    True
    """
    data: Mapping[str, Any] = json.loads(text)
    options = {**data["options"], "plugin": tuple(data["options"]["plugin"])}
    return Job(from_mapping(data["config"]), data["data"], RunOptions(**options))
