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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any, TypedDict, get_type_hints

from msgspec import Meta

from genie_dg.arguments import MOST, infos
from genie_dg.check import InputError, one_of
from genie_dg.registry import with_defaults
from genie_dg.runs.config import RunConfig, oracle_rule
from genie_dg.search_space import value_from

from ._profile import Profile, check_result_name
from .draws import Searched, draw
from .registry import fit_to_rows
from .tasks import TASKS, tasks_of
from .toml_file import check_keys, read_toml, typed

SWEPT = tuple(name for name, info in infos(RunConfig).items() if info.swept)
"""The fields of a run that a sweep may fix for all its runs."""

_MOST_SEEDS = 1_000_000

_Names = Annotated[Sequence[Annotated[str, Meta(min_length=1)]], Meta(min_length=1)]
_Seed = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Seeds = (
    Annotated[int, Meta(ge=1, le=_MOST_SEEDS)]
    | Annotated[Sequence[_Seed], Meta(min_length=1, max_length=_MOST_SEEDS)]
    | None
)
_Domains = Annotated[Sequence[str | int], Meta(min_length=1)]


class ColumnNames(TypedDict, total=False):
    """What can be said of the columns of a table."""

    domain: str
    label: str
    image: str
    ignore: list[str]


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
        columns: by entry of ``datasets``, for tables, which column says what: `ColumnNames`.
    """

    name: str
    protocol: str
    datasets: _Names
    algorithms: _Names
    optimizers: _Names
    test_domains: str | Annotated[Sequence[_Domains], Meta(min_length=1)] = "leave-one-out"
    hparams: _Seeds = None
    trials: _Seeds = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    algorithm_settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    optimizer_settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    fast: bool = True
    threads: int = 1
    plugins: Sequence[Annotated[str, Meta(min_length=1)]] = ()
    columns: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_result_name("The sweep", self.name)
        if isinstance(self.test_domains, str):
            one_of("test_domains", self.test_domains, TASKS)
        for name, columns in self.columns.items():
            one_of("columns", name, self.datasets)
            check_keys(f"[columns.{name!r}]", columns, ColumnNames.__annotations__)
            typed("[columns]", name, columns, ColumnNames)
        check_keys("[overrides] of a sweep", self.overrides, SWEPT)
        # refuses what no run can have; the steps of a sweep may be the protocol's
        RunConfig("any", (0,), **{"steps": MOST, "threads": self.threads, **self.overrides})


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
    algorithms: Mapping[str, Searched]
    optimizers: Mapping[str, Searched]
    small_images: tuple[str, ...] = ()
    without_weights: tuple[str, ...] = ()
    in_files: tuple[str, ...] = ()
    tables: Mapping[str, str] = field(default_factory=dict)


def load_sweep(path: str | Path) -> SweepConfig:
    """A sweep from a TOML file."""
    return sweep_from(read_toml(Path(path)), str(path))


def sweep_from(data: Mapping[str, Any], where: str = "The sweep") -> SweepConfig:
    """A sweep from a mapping; unknown and missing keys are refused.

    >>> sweep_from({"name": "a", "protocol": "domainbed", "datasets": ["PACS"], "algorithm": ["ERM"]})
    Traceback (most recent call last):
    genie_dg.check.InputError: The sweep has no 'algorithm'; its keys are name, protocol, datasets, \
algorithms, optimizers, test_domains, hparams, trials, overrides, algorithm_settings, optimizer_settings, \
fast, threads, plugins, columns; did you mean 'algorithms'?
    """
    kinds = get_type_hints(SweepConfig, include_extras=True)
    check_keys(where, data, kinds)
    for f in fields(SweepConfig):
        if f.name not in data and f.default is MISSING and f.default_factory is MISSING:
            raise InputError(f"{where} does not say {f.name!r}; add it.")
    return SweepConfig(**{key: typed(where, key, value, kinds[key]) for key, value in data.items()})


def expand(sweep: SweepConfig, profile: Profile, facts: Facts) -> list[RunConfig]:
    """The runs of a sweep, each once, always in the same order.

    Draws come first in the order, then trials, data sets, algorithms, optimizers and test domains: a sweep that
    is stopped has complete tables of the draws before.

    Args:
        sweep: what is asked for.
        profile: the protocol it names.
        facts: of the registries and the data.
    """
    profile = fit_to_rows(profile, facts.algorithms, facts.optimizers)
    small = (*profile.small_images, *facts.small_images, *facts.tables)
    profile = replace(profile, small_images=small)
    datasets = _spelled("data set", sweep.datasets, facts.domains)
    algorithms = _spelled("algorithm", sweep.algorithms, facts.algorithms)
    optimizers = _spelled("optimizer", sweep.optimizers, facts.optimizers)
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


def _spelled(kind: str, names: Iterable[str], known: Iterable[str]) -> list[str]:
    """Names as their registry spells them, each once."""
    known = list(known)
    by_lower = {name.lower(): name for name in known}
    spelled = [name if name in known else by_lower.get(name.lower(), name) for name in names]
    return list(dict.fromkeys(one_of(kind, name, known) for name in spelled))


def _fixed(
    kind: str, given: Mapping[str, Mapping[str, Any]], used: Sequence[str], rows: Mapping[str, Searched]
) -> dict[str, dict[str, Any]]:
    """The fixed settings, by name as the registry spells it; they must be of what the sweep runs."""
    fixed: dict[str, dict[str, Any]] = {}
    for asked, settings in given.items():
        (name,) = _spelled(kind, [asked], rows)
        if name not in used:
            raise InputError(
                f"[{kind}_settings.{asked}] fixes settings of an {kind} that the sweep does not run "
                f"({', '.join(used)}); add {name!r} to {kind}s, or remove the table."
            )
        space = rows[name].space
        with_defaults(name, space, settings)
        fixed.setdefault(name, {}).update({k: value_from(name, k, space[k], x) for k, x in settings.items()})
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


def _seeds(asked: int | Sequence[int] | None, usual: int) -> list[int]:
    if asked is None or isinstance(asked, int):
        return list(range(usual if asked is None else asked))
    return list(dict.fromkeys(asked))
