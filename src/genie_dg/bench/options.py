"""How and where runs happen, as one record from the command line to the process that trains.

Nothing here changes the science, so nothing here is part of a run's identity. The flags of ``genie-dg train``
and ``genie-dg sweep`` are made from the fields.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from genie_dg.arguments import add_fields, check_fields, option, path_text, typed_fields
from genie_dg.data.columns import Columns
from genie_dg.runs.config import RunConfig
from genie_dg.runs.folder import is_done

_RUNS = ("train", "sweep")
_STORING = (*_RUNS, "diwa")
_OPENING = (*_STORING, "lr-find")
_TABULAR = ("train", "lr-find", "diwa", "fit", "data", "evaluate")
"""Commands that run what their options say, that write runs, that open data and build networks, and that can be
told which column of a table says what (a sweep says it in its file)."""
EVALUATE = ("used", "all")
"""Which parts of domains are evaluated: what selection, tables and the report read (the held-back parts of the
training domains, both parts of the test domains), or every part, as DomainBed does."""
KEEP = ("best", "last", "all", "none")
"""Whose weights a run leaves: of the record with the best validation, of the last, of every one, or none."""


def _folder(default: str, help: str, verbs: tuple[str, ...]) -> Any:
    """A folder that is typed."""
    return option(default, help, verbs, metavar="FOLDER", convert=path_text)


def _column(default: Any, help: str) -> Any:
    """The name of a column of a table, or several."""
    return option(default, f"of a table, {help}", _TABULAR, metavar="NAME")


@dataclass(frozen=True)
class RunOptions:
    """How and where runs happen; the fields are explained by their flags."""

    out: str = _folder("runs", "the folder of runs", (*_STORING, "fit"))
    root: str = _folder("", "for published sets, the folder that holds them", (*_OPENING, "fit"))
    cache: str = _folder("", "decode pictures once into this folder", _OPENING)
    weights: str = option(
        "", "a local file of pretrained weights", ("train", "lr-find"), metavar="FILE", convert=path_text
    )
    device: str = option("", "cpu, cuda or mps", (*_OPENING, "fit"), shown="cuda where there is one")
    evaluate: str = option(
        "used", "the parts of domains that selection and tables read, or every part", _RUNS, choices=EVALUATE
    )
    keep: str = option("best", "whose weights to keep, best by validation", _RUNS, choices=KEEP)
    watch: str = option("", "also measure updates, osgr, or updates,osgr", _RUNS)
    track: str = option("", "also send curves to mlflow, wandb, tensorboard, or several", _RUNS)
    plugin: tuple[str, ...] = option(
        (), "a Python file that registers your own rows", _OPENING, metavar="FILE", convert=path_text
    )
    group: str = option("")
    """The name of the sweep, by which trackers group its runs."""

    domain_column: str = _column("", "the column whose values are the domains")
    label_column: str = _column("", "the column whose values are the classes")
    image_column: str = _column("", "the column that holds pictures")
    ignore_column: tuple[str, ...] = _column((), "a column that is not a feature")

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def watches(self) -> tuple[str, ...]:
        """What is measured besides the records."""
        return tuple(filter(None, map(str.strip, self.watch.split(","))))

    @property
    def tracks(self) -> tuple[str, ...]:
        """The trackers that get the curves."""
        return tuple(filter(None, map(str.strip, self.track.split(","))))

    @property
    def columns(self) -> Columns:
        """Which column of a table says what."""
        return Columns(self.domain_column, self.label_column, self.image_column, self.ignore_column)


def add_flags(parser: argparse.ArgumentParser, verb: str, **defaults: Any) -> None:
    """Give a command the flags of its options, some with another default than the field."""
    add_fields(parser, RunOptions, verb, **defaults)


def options_from(arguments: argparse.Namespace, **defaults: Any) -> RunOptions:
    """The options that were typed; plugins with whole paths, for processes that start elsewhere."""
    values = {**defaults, **typed_fields(arguments, RunOptions)}
    values["plugin"] = tuple(str(Path(file).resolve()) for file in values.get("plugin", ()))
    return RunOptions(**values)


def columns_from(arguments: argparse.Namespace) -> Columns:
    """The columns that were typed, for a command with no other options of runs."""
    typed = typed_fields(arguments, RunOptions)
    return RunOptions(**{name: value for name, value in typed.items() if name.endswith("_column")}).columns


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
        return is_done(self.folder)

    def changed(self, **options: Any) -> Job:
        """The same job with some other options."""
        return replace(self, options=replace(self.options, **options))
