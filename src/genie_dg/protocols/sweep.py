"""What a sweep is: many runs in a few lines of TOML, and the runs it stands for.

For a table among the data sets, ``[columns."patients.csv"]`` says which column is the ``domain``, the ``label``
and the ``image``, and lists those to ``ignore``.

::

    name = "pacs-optimizers"
    protocol = "domainbed"              # or the path of a protocol of your own, "mine.toml"
    datasets = ["PACS"]
    algorithms = ["ERM"]
    optimizers = ["adam", "sam", "genie"]
    test_domains = "leave-one-out"      # leave-two-out, both, single-source, or [["sketch"], ["photo", 0]]
    hparams = 20                        # draws 0 to 19, 0 being the defaults; or a list of draws
    trials = 3                          # trials 0 to 2; or a list

    plugins = ["rows.py"]               # files that register rows of your own, seen from this file

    [overrides]                         # instead of the protocol's
    steps = 1001

    [optimizer_settings.sam]            # instead of what is drawn
    base = "sgd"
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

from genie_dg.check import InputError, did_you_mean, one_of, whole_number
from genie_dg.runs.config import MOST, RunConfig, oracle_rule
from genie_dg.search_space import value_from

from ._profile import NAME, Profile
from .draws import Searched, SearchedAlgorithm, draw
from .registry import fitted
from .tasks import check_tasks, tasks_of
from .toml_file import check_keys, check_kind, kind_of, read_toml

OVERRIDES = {
    "steps": "whole number",
    "checkpoint_every": "whole number",
    "backbone": "text",
    "pretrained": "true or false",
    "freeze_statistics": "true or false",
    "image_size": "whole number",
    "batch_size": "whole number",
    "dropout": "number",
    "swad": "true or false",
    "precision": "text",
    "augment": "true or false",
    "eval_augment": "text",
    "schedule": "text",
    "warmup": "whole number",
    "clip": "number",
    "label_smoothing": "number",
    "class_weights": "text",
    "freeze": "whole number",
    "early_stop": "whole number",
}
"""The fields of a run that a sweep may fix for all its runs, and their kinds."""

COLUMNS = ("domain", "label", "image", "ignore")
"""What can be said of the columns of a table."""

MANY = 1_000_000
"""Draws or trials that a sweep can have at most."""


@dataclass(frozen=True)
class SweepConfig:
    """Many runs.

    Args:
        name: of the sweep.
        protocol: the name of the rules, or the path of a file of your own.
        datasets, algorithms, optimizers: names of their registries; every combination is run.
        test_domains: leave-one-out, leave-two-out, both, single-source, or a list of sets of domains, each by
            name or index.
        hparams: seeds of the draws; a number n stands for 0 to n - 1, ``None`` for the protocol's number.
        trials: the same for trials.
        overrides: fields of `RunConfig` instead of the protocol's and of what is drawn; the runs then carry
            the protocol's name with ``/changed``, and tables do not mix them with unchanged ones.
        algorithm_settings, optimizer_settings: by name, settings instead of what is drawn.
        fast: pictures in files are augmented by OpenCV and laid out channels last; ``False`` for the slower way
            of before, which rounds differently. Part of a run's identity, but no change of the protocol.
        threads: of each run, which changes the last digits; part of its identity, no change of the protocol.
        plugins: files that register rows which the sweep names; paths are seen from the sweep's file.
        columns: by entry of ``datasets``, for tables, which column says what: `COLUMNS`.
    """

    name: str
    protocol: str
    datasets: Sequence[str]
    algorithms: Sequence[str]
    optimizers: Sequence[str]
    test_domains: str | Sequence[Sequence[str | int]] = "leave-one-out"
    hparams: int | Sequence[int] | None = None
    trials: int | Sequence[int] | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    algorithm_settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    optimizer_settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    fast: bool = True
    threads: int = 1
    plugins: Sequence[str] = ()
    columns: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        where = "The sweep"
        if kind_of(self.plugins) != "list" or not all(isinstance(name, str) and name for name in self.plugins):
            raise InputError(f"{where} has plugins = {self.plugins!r}; it must be a list of Python files.")
        for key in ("name", "protocol"):
            check_kind(where, key, getattr(self, key), "text", InputError)
        if not NAME.fullmatch(self.name):
            raise InputError(
                f"{where} has name = {self.name!r}; use letters, digits, dots, dashes and underscores."
            )
        for key in ("datasets", "algorithms", "optimizers"):
            _check_names(key, getattr(self, key))
        check_tasks(self.test_domains)
        _check_columns(self.columns, self.datasets)
        for key in ("hparams", "trials"):
            _check_seeds(key, getattr(self, key))
        check_kind(where, "fast", self.fast, "true or false", InputError)
        check_kind(where, "threads", self.threads, "whole number", InputError)
        whole_number("threads", self.threads)
        check_kind(where, "overrides", self.overrides, "table", InputError)
        check_keys("[overrides] of a sweep", self.overrides, OVERRIDES, InputError)
        for key, value in self.overrides.items():
            check_kind("[overrides]", key, value, OVERRIDES[key], InputError)
        RunConfig("any", (0,), **{"steps": MOST["steps"], **self.overrides})  # refuses what no run can have
        for key in ("algorithm_settings", "optimizer_settings"):
            check_kind(where, key, getattr(self, key), "table", InputError)
            for name, settings in getattr(self, key).items():
                check_kind(f"[{key}]", name, settings, "table", InputError)


@dataclass(frozen=True)
class Facts:
    """What a sweep must know of the registries and the data.

    Args:
        domains: for each data set the names of its domains, in order.
        algorithms, optimizers: by name, their rows.
        small_images: the data sets whose samples are small pictures.
        without_weights: the networks for which no pretrained weights are published.
        in_files: the data sets whose samples are pictures in files.
        tables: the data sets whose samples are rows of a table, by name of their network.
    """

    domains: Mapping[str, Sequence[str]]
    algorithms: Mapping[str, SearchedAlgorithm]
    optimizers: Mapping[str, Searched]
    small_images: tuple[str, ...] = ()
    without_weights: tuple[str, ...] = ()
    in_files: tuple[str, ...] = ()
    tables: Mapping[str, str] = field(default_factory=dict)


def load_sweep(path: str | Path) -> SweepConfig:
    """A sweep from a TOML file."""
    return sweep_from(read_toml(Path(path), InputError), str(path))


def sweep_from(data: Mapping[str, Any], where: str = "The sweep") -> SweepConfig:
    """A sweep from a mapping; unknown and missing keys are refused.

    >>> sweep_from({"name": "a", "protocol": "domainbed", "datasets": ["PACS"], "algorithm": ["ERM"]})
    Traceback (most recent call last):
    genie_dg.check.InputError: The sweep has no 'algorithm'; its keys are name, protocol, datasets, \
algorithms, optimizers, test_domains, hparams, trials, overrides, algorithm_settings, optimizer_settings, \
fast, threads, plugins, columns; did you mean 'algorithms'?
    """
    check_keys(where, data, [f.name for f in fields(SweepConfig)], InputError)
    for f in fields(SweepConfig):
        if f.name not in data and f.default is MISSING and f.default_factory is MISSING:
            raise InputError(f"{where} does not say {f.name!r}; add it.")
    return SweepConfig(**data)


def expand(sweep: SweepConfig, profile: Profile, facts: Facts) -> list[RunConfig]:
    """The runs of a sweep, each once, always in the same order.

    Draws come first in the order, then trials, data sets, algorithms, optimizers and test domains: a sweep that
    is stopped has complete tables of the draws before.

    Args:
        sweep: what is asked for.
        profile: the protocol it names.
        facts: of the registries and the data.
    """
    profile = fitted(profile, facts.algorithms, facts.optimizers)
    small = (*profile.small_images, *facts.small_images, *facts.tables)
    profile = replace(profile, small_images=small)
    datasets = _known("data set", sweep.datasets, facts.domains)
    algorithms = _known("algorithm", sweep.algorithms, facts.algorithms)
    optimizers = _known("optimizer", sweep.optimizers, facts.optimizers)
    of_algorithms = _fixed("algorithm", sweep.algorithm_settings, algorithms, facts.algorithms)
    of_optimizers = _fixed("optimizer", sweep.optimizer_settings, optimizers, facts.optimizers)
    tasks = {name: tasks_of(sweep.test_domains, name, facts.domains[name]) for name in datasets}
    of_sets = {name: _of_set(sweep, profile, facts, name) for name in datasets}
    seeds = product(_seeds(sweep.hparams, profile.hparams), _seeds(sweep.trials, profile.trials))
    configs = []
    for (hparams, trial), dataset, algorithm, optimizer in product(seeds, datasets, algorithms, optimizers):
        rows = facts.algorithms[algorithm], facts.optimizers[optimizer]
        drawn = draw(profile, dataset, *rows, hparams, trial)
        shared = {"batch_size": drawn.batch_size, "dropout": drawn.dropout, **of_sets[dataset]}
        shared["algorithm_settings"] = {**drawn.algorithm_settings, **of_algorithms.get(algorithm, {})}
        shared["optimizer_settings"] = {**drawn.optimizer_settings, **of_optimizers.get(optimizer, {})}
        shared |= {"algorithm": algorithm, "optimizer": optimizer}
        shared |= {"trial_seed": trial, "hparams_seed": hparams}
        configs += [RunConfig(dataset, task, **shared) for task in tasks[dataset]]
    return configs


def _known(kind: str, asked: Iterable[str], known: Iterable[str]) -> list[str]:
    """Names as their registry spells them, each once."""
    known = list(known)
    by_lower = {name.lower(): name for name in known}
    names = [name if name in known else by_lower.get(name.lower(), name) for name in asked]
    return list(dict.fromkeys(one_of(kind, name, known) for name in names))


def _fixed(
    kind: str, given: Mapping[str, Mapping[str, Any]], used: Sequence[str], rows: Mapping[str, Searched]
) -> dict[str, dict[str, Any]]:
    """The fixed settings, by name as the registry spells it; they must be of what the sweep runs."""
    fixed: dict[str, dict[str, Any]] = {}
    for asked, settings in given.items():
        (name,) = _known(kind, [asked], rows)
        if name not in used:
            raise InputError(
                f"[{kind}_settings.{asked}] fixes settings of an {kind} that the sweep does not run "
                f"({', '.join(used)}); add {name!r} to {kind}s, or remove the table."
            )
        space = rows[name].space
        for key, value in settings.items():
            if key not in space:
                raise InputError(
                    f"{name} has no setting {key!r}; its settings are {', '.join(space) or 'none'}"
                    f"{did_you_mean(key, space)}"
                )
            fixed.setdefault(name, {})[key] = value_from(name, key, space[key], value)
    return fixed


def _of_set(sweep: SweepConfig, profile: Profile, facts: Facts, dataset: str) -> dict[str, Any]:
    """The fields that the protocol fixes for a data set, with the overrides of the sweep put over them."""
    backbone, pretrained = profile.backbone_of(dataset)
    backbone = facts.tables.get(dataset, backbone)
    values: dict[str, Any] = {
        "protocol": f"{profile.name}/changed" if sweep.overrides else profile.name,
        "backbone": backbone,
        "pretrained": pretrained,
        "image_size": profile.image_size,
        "steps": profile.steps_of(dataset),
        "checkpoint_every": profile.checkpoint_every_of(dataset),
        "eval_augment": profile.eval_augment if sweep.overrides.get("augment", True) else "none",
        "fast": sweep.fast and dataset in facts.in_files,
        "threads": sweep.threads,
        **sweep.overrides,
    }
    if profile.oracle != oracle_rule(values["protocol"]):
        values["oracle"] = profile.oracle
    if values["pretrained"]:
        values.setdefault("freeze_statistics", profile.freeze_statistics)
        if values["backbone"] in facts.without_weights:
            raise InputError(
                f"On {dataset} the sweep would start from published weights, and {values['backbone']!r} has "
                "none; add pretrained = false to [overrides]."
            )
    return values


def _check_columns(columns: Any, datasets: Sequence[str]) -> None:
    """Refuse columns of a data set that the sweep does not name, and what cannot be said of a column."""
    check_kind("The sweep", "columns", columns, "table", InputError)
    for name, said in columns.items():
        where = f"[columns.{name!r}]"
        if name not in datasets:
            raise InputError(
                f"{where} is not of a data set of the sweep; its data sets are {', '.join(datasets)}"
                f"{did_you_mean(name, datasets)}"
            )
        check_kind("[columns]", name, said, "table", InputError)
        check_keys(where, said, COLUMNS, InputError)
        ignored = said.get("ignore", [])
        if kind_of(ignored) != "list":
            raise InputError(f"{where} has ignore = {ignored!r}; it must be a list of names of columns.")
        for value in (*(said[key] for key in said if key != "ignore"), *ignored):
            check_kind(where, "a column", value, "text", InputError)


def _seeds(asked: int | Sequence[int] | None, usual: int) -> list[int]:
    if asked is None or isinstance(asked, int):
        return list(range(usual if asked is None else asked))
    return list(dict.fromkeys(asked))


def _check_names(key: str, value: Any) -> None:
    if kind_of(value) != "list" or not value or not all(isinstance(name, str) and name for name in value):
        raise InputError(f"The sweep has {key} = {value!r}; it must be a list of one name or more.")


def _check_seeds(key: str, value: Any) -> None:
    if value is None or (kind_of(value) == "whole number" and 1 <= value <= MANY):
        return
    listed = list(_whole(value)) if kind_of(value) == "list" else []
    if not listed or len(listed) != len(value):
        raise InputError(
            f"The sweep has {key} = {value!r}; it must be a whole number of at least 1, or a list of seeds "
            f"that are whole numbers from 0 on, and at most {MANY:,} of them."
        )


def _whole(values: Iterable[Any]) -> Iterator[int]:
    return (value for value in values if kind_of(value) == "whole number" and 0 <= value < 2**63)
