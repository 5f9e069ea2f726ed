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

from genie_dg.arguments import path_text, some_text
from genie_dg.check import one_of
from genie_dg.data.columns import Columns
from genie_dg.runs import folder as files
from genie_dg.runs.config import RunConfig, canonical, from_mapping

BOTH = ("train", "sweep")
ALL = (*BOTH, "diwa")
OPENING = (*ALL, "lr-find")
"""Commands that open data and build networks."""
TABULAR = ("train", "lr-find", "diwa", "fit", "data", "evaluate")
"""Commands that can be told which column of a table says what; a sweep says it in its file."""
EVALUATE = ("used", "all")
"""Which parts of domains are evaluated: what selection, tables and the report read (the held-back parts of the
training domains, both parts of the test domains), or every part, as DomainBed does."""
KEEP = ("best", "last", "all", "none")
"""Whose weights a run leaves: of the record with the best validation, of the last, of every one, or none."""


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

    out: str = option("runs", "the folder of runs", ALL, metavar="FOLDER", type=path_text)
    root: str = option(
        "", "for published sets, the folder that holds them", OPENING, metavar="FOLDER", type=path_text
    )
    cache: str = option("", "decode pictures once into this folder", OPENING, metavar="FOLDER", type=path_text)
    weights: str = option(
        "", "a local file of pretrained weights", ("train", "lr-find"), metavar="FILE", type=path_text
    )
    device: str = option("", "cpu, cuda or mps (default: cuda where there is one)", OPENING, type=some_text)
    evaluate: str = option(
        "used", "used: the parts of domains that selection and tables read; all: every part", type=some_text
    )
    keep: str = option(
        "best", "weights to keep: best (by validation), last, all (of every record) or none", type=some_text
    )
    watch: str = option("", "also measure updates, osgr, or updates,osgr", type=some_text)
    track: str = option("", "also send curves to mlflow, wandb, tensorboard, or several", type=some_text)
    plugin: tuple[str, ...] = option(
        (), "a Python file that registers your own rows", OPENING, metavar="FILE", type=path_text
    )
    group: str = option("", "", ())
    """The name of the sweep, by which trackers group its runs."""

    domain_column: str = option(
        "", "of a table, the column whose values are the domains", TABULAR, metavar="NAME", type=some_text
    )
    label_column: str = option(
        "", "of a table, the column whose values are the classes", TABULAR, metavar="NAME", type=some_text
    )
    image_column: str = option(
        "", "of a table of pictures, the column that holds them", TABULAR, metavar="NAME", type=some_text
    )
    ignore_column: tuple[str, ...] = option(
        (), "of a table, a column that is not a feature", TABULAR, metavar="NAME", type=some_text
    )

    def __post_init__(self) -> None:
        one_of("evaluate", self.evaluate, EVALUATE)
        one_of("keep", self.keep, KEEP)

    @property
    def watches(self) -> tuple[str, ...]:
        """What is measured besides the records."""
        return _words(self.watch)

    @property
    def tracks(self) -> tuple[str, ...]:
        """The trackers that get the curves."""
        return _words(self.track)

    @property
    def columns(self) -> Columns:
        """Which column of a table says what."""
        return Columns(self.domain_column, self.label_column, self.image_column, self.ignore_column)


def _words(text: str) -> tuple[str, ...]:
    """What stands between commas."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


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
            given = one.default or None  # argparse would check an empty default as if it were typed
            flag = {"type": type(one.default), **flag, "default": given}
            text += f" (default: {one.default})" if one.default not in ("", 0) else ""
        short = ["-o"] if one.name == "out" else []
        parser.add_argument(*short, f"--{one.name.replace('_', '-')}", help=text, **flag)


def options_from(arguments: argparse.Namespace) -> RunOptions:
    """The options that were typed; plugins with whole paths, for processes that start elsewhere."""
    typed = {one.name: getattr(arguments, one.name, None) for one in fields(RunOptions)}
    values = {key: value for key, value in typed.items() if value is not None}
    values["plugin"] = tuple(str(Path(file).resolve()) for file in values.get("plugin", ()))
    values["ignore_column"] = tuple(values.get("ignore_column", ()))
    return RunOptions(**values)


def columns_from(arguments: argparse.Namespace) -> Columns:
    """The columns that were typed, for a command with no other options of runs."""
    domain, label, image = (getattr(arguments, f"{kind}_column") or "" for kind in ("domain", "label", "image"))
    return Columns(domain, label, image, tuple(arguments.ignore_column))


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
        return files.is_done(self.folder)

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
    options: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in data["options"].items()
    }
    return Job(from_mapping(data["config"]), data["data"], RunOptions(**options))
