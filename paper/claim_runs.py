"""The runs behind the claims about accuracy: trained once, kept on the disk, compared in pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from genie_dg.bench.train import NotFinite
from genie_dg.data.domains import DomainSet
from genie_dg.results.select import SelectedRun
from genie_dg.runs.config import RunConfig

from .figure_setup import OptimizerSetup
from .runs import train_and_select, train_side_by_side
from .verdict import NumbersTable

ClaimNumbers = dict[str, list[float]]
"""For each part of a claim one number for each seed."""

TUNING_SEED = 1000
"""The first of the trials that choose learning rates; no claim is measured on them."""

LIKE = {"AdamW": ("Adam", "adamw")}
"""Optimizers that claims compare with and figures do not show: whose settings they have, and their name."""


@dataclass(frozen=True)
class Sizes:
    """How large a ledger is; ``only`` names the claims that are measured, all when empty."""

    seeds: int
    steps: int
    osgr_points: int
    pool: int
    repeats: int
    horizons: tuple[int, ...]
    lr_factors: tuple[float, ...]
    cells: tuple[tuple[float, float], ...]
    algorithms: tuple[str, ...]
    cost_network: str = ""
    evaluations: int = 4
    tuning: int = 1
    only: tuple[str, ...] = ()


SIZES = {
    "smoke": Sizes(2, 10, 1, 16, 3, (16, 64, 256), (1.0,), ((0.1, 0.9), (0.7, 0.99)), ("CORAL",)),
    "cpu": Sizes(
        24, 300, 2, 50, 24, (64, 256, 1024, 4096), (0.1, 0.3, 1.0, 3.0, 10.0),
        ((0.1, 0.9), (0.1, 0.99), (0.7, 0.9), (0.7, 0.99)), ("CORAL", "RSC"), "resnet18", tuning=6,
    ),
    "pretrained": Sizes(
        4, 61, 2, 32, 3, (64, 256, 1024, 4096), (0.3, 1.0, 3.0), (), ("CORAL",), evaluations=1,
        only=("accuracy", "preconditioning", "noise-and-mask", "algorithms", "one-source"),
    ),
}  # fmt: skip
"""By scale; ``pretrained`` is the scale cpu on pictures, where a step costs a hundred times as much."""


@dataclass
class ClaimRuns:
    """Runs and their accuracies; a run that is on the disk is not repeated.

    Args:
        data: the set.
        config: a run without optimizer, test domain and trial.
        sizes: how large.
        runs: the folder of runs.
        optimizers: by label; `tuned` gives them their learning rates.
        source: what `open_data` opens the set with, for other processes.
        workers: runs at a time, in processes of their own when more than one.
        configs: the runs that were asked for, by identity.
        choices: the record of each that counts.
        rates: the chosen learning rates, by `rate_name`.
        at_edge: the names of those that were the first or the last that was tried.
        tables: of what was measured along training, by name.
        notes: sentences that belong under the ledger.
    """

    data: DomainSet
    config: RunConfig
    sizes: Sizes
    runs: Path
    optimizers: dict[str, OptimizerSetup]
    source: tuple[str, Path | None] = ("", None)
    workers: int = 1
    configs: dict[str, RunConfig] = field(default_factory=dict)
    choices: dict[str, SelectedRun] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)
    at_edge: set[str] = field(default_factory=set)
    tables: dict[str, NumbersTable] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def seeds(self) -> range:
        return range(self.sizes.seeds)

    def config_of(
        self, setup: OptimizerSetup, seed: int, algorithm: str = "ERM", one_source: bool = False
    ) -> RunConfig:
        """The run of a seed: domain ``last - seed`` (in turn) is left out, or is the only one trained on."""
        count = len(self.data.domains)
        one = (count - 1 - seed) % count
        test = tuple(k for k in range(count) if k != one) if one_source else (one,)
        return replace(setup.on(self.config), test_domains=test, trial_seed=seed, algorithm=algorithm)

    def choice(self, config: RunConfig) -> SelectedRun:
        """The record of a run that counts: that with the best validation on the sources."""
        run = config.run_id
        self.configs.setdefault(run, config)
        if run not in self.choices:
            self.choices[run] = train_and_select(config, self.data, self.runs)
        return self.choices[run]

    def prepare(self, configs: Sequence[RunConfig]) -> None:
        """Train runs side by side; without workers they are trained when they are asked for.

        One that fails is trained again when it is asked for, and then says why.
        """
        name, root = self.source
        if self.workers > 1 and name:
            train_side_by_side(configs, name, root, self.runs, self.workers)

    def accuracy(self, config: RunConfig) -> float:
        """On the test domains, in points."""
        return 100 * fmean(self.choice(config).scores)

    def validation(self, config: RunConfig) -> float:
        """On the held-back parts of the sources; 0 if the run diverges."""
        try:
            return self.choice(config).value
        except NotFinite:
            return 0.0

    def setup(self, label: str) -> OptimizerSetup:
        """An optimizer before it is tuned."""
        if label in self.optimizers or label not in LIKE:
            return self.optimizers[label]
        other, optimizer = LIKE[label]
        return replace(self.optimizers[other], label=label, optimizer=optimizer)

    def tuned(self, label: str, algorithm: str = "ERM", one_source: bool = False) -> OptimizerSetup:
        """With the learning rate, of a few, that validates best on the tuning trials, for each task by itself.

        A task costs factors x trials runs for each optimizer: at scale cpu 5 x 6, on pictures 3 x 1.
        """
        setup, name = self.setup(label), rate_name(label, algorithm, one_source)
        if len(self.sizes.lr_factors) == 1:
            return setup
        if name not in self.rates:
            rates = [setup.settings["lr"] * factor for factor in self.sizes.lr_factors]
            trials = range(TUNING_SEED, TUNING_SEED + self.sizes.tuning)
            having = {lr: setup.having(lr=lr) for lr in rates}
            runs = {
                lr: [self.config_of(s, t, algorithm, one_source) for t in trials] for lr, s in having.items()
            }
            self.prepare([run for some in runs.values() for run in some])
            best = max(rates, key=lambda lr: fmean(self.validation(run) for run in runs[lr]))
            self.rates[name] = best
            self.at_edge |= {name} if best in (rates[0], rates[-1]) else set()
        return setup.having(lr=self.rates[name])

    def differences(
        self, ours: OptimizerSetup, theirs: Mapping[str, OptimizerSetup], **options: Any
    ) -> ClaimNumbers:
        """Accuracy of one optimizer minus that of each other, in points, paired by seed."""
        configs = {
            name: [self.config_of(setup, seed, **options) for seed in self.seeds]
            for name, setup in {"": ours, **theirs}.items()
        }
        self.prepare([config for some in configs.values() for config in some])
        accuracies = {name: [self.accuracy(config) for config in some] for name, some in configs.items()}
        return against(accuracies, "")


def rate_name(label: str, algorithm: str = "ERM", one_source: bool = False) -> str:
    """What a learning rate is called that was tuned for an optimizer in a task.

    >>> rate_name("SGD"), rate_name("SGD", "CORAL"), rate_name("SGD", one_source=True)
    ('SGD', 'SGD with CORAL', 'SGD with one source')
    """
    task = [algorithm] if algorithm != "ERM" else []
    task += ["one source"] if one_source else []
    return f"{label} with {' and '.join(task)}" if task else label


def against(numbers: ClaimNumbers, ours: str = "GENIE") -> ClaimNumbers:
    """Ours minus each other, seed by seed.

    >>> against({"SGD": [1.0, 2.0], "GENIE": [1.5, 2.0]})
    {'SGD': [0.5, 0.0]}
    """
    others = {label: values for label, values in numbers.items() if label != ours}
    return {k: [a - b for a, b in zip(numbers[ours], v, strict=True)] for k, v in others.items()}
