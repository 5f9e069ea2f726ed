"""The runs behind the claims about accuracy: made once, kept on the disk, compared in pairs."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from genie_dg.bench.assemble import DegenerateWarning, assemble
from genie_dg.bench.jobs import Job
from genie_dg.bench.launch import launch
from genie_dg.bench.train import NotFinite, train
from genie_dg.data.domains import DomainSet
from genie_dg.runs.record import RunConfig

from ._figure import Contender

Opens = tuple[str, Path | None]
Numbers = dict[str, list[float]]
"""For each part of a claim one number for each seed."""

TUNING_SEED = 1000
"""The first of the trials that choose learning rates; no claim is measured on them."""


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
        24, 300, 4, 75, 12, (64, 256, 1024, 4096), (0.1, 0.3, 1.0, 3.0, 10.0),
        ((0.1, 0.9), (0.1, 0.99), (0.7, 0.9), (0.7, 0.99)), ("CORAL", "RSC"), "resnet18", tuning=6,
    ),
    "pretrained": Sizes(
        4, 61, 0, 0, 0, (), (0.3, 1.0, 3.0), (), ("CORAL",), evaluations=1,
        only=("accuracy", "preconditioning", "noise-and-mask", "algorithms", "one-source"),
    ),
}  # fmt: skip
"""By scale; ``pretrained`` is the scale cpu on pictures, where a step costs a hundred times as much."""


@dataclass
class Bench:
    """Runs and their accuracies; a run that is on the disk is not repeated.

    Args:
        data: the set.
        config: a run without optimizer, test domain and trial.
        sizes: how large.
        runs: the folder of runs.
        contenders: by label; `tuned` gives them their learning rates.
        opens: what `open_data` opens the set with, for other processes.
        workers: runs at a time, in processes of their own when more than one.
        made: the runs that were asked for.
        rates: the chosen learning rates, by label.
        at_edge: the labels whose choice was the first or the last that was tried.
    """

    data: DomainSet
    config: RunConfig
    sizes: Sizes
    runs: Path
    contenders: dict[str, Contender]
    opens: Opens = ("", None)
    workers: int = 1
    made: list[RunConfig] = field(default_factory=list)
    rates: dict[str, dict[str, float]] = field(default_factory=dict)
    at_edge: set[str] = field(default_factory=set)

    def run_of(
        self, contender: Contender, seed: int, algorithm: str = "ERM", source: bool = False
    ) -> RunConfig:
        """The run of a seed: domain ``last - seed`` (in turn) is left out, or is the only one trained on."""
        count = len(self.data.domains)
        one = (count - 1 - seed) % count
        test = tuple(k for k in range(count) if k != one) if source else (one,)
        return replace(contender.on(self.config), test_domains=test, trial_seed=seed, algorithm=algorithm)

    def records(self, config: RunConfig) -> list[dict[str, Any]]:
        """The records of a run, made now unless they are there."""
        if config not in self.made:
            self.made.append(config)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DegenerateWarning)
            return train(assemble(config, self.data), self.runs / config.run_id)

    def prepare(self, configs: Sequence[RunConfig]) -> None:
        """Make runs side by side; without workers they are made when they are asked for.

        One that fails is made again when it is asked for, and then says why.
        """
        data, root = self.opens
        if self.workers > 1 and data:
            jobs = [Job(c, data, str(self.runs), str(root or "")) for c in configs]
            launch([job for job in jobs if not job.done], self.workers, retries=0)

    def accuracy(self, config: RunConfig) -> float:
        """In points: on the test domains, at the record with the best validation on the sources."""
        return 100 * accuracy_of(self.records(config), config.test_domains)

    def tuned(self, label: str) -> Contender:
        """With the learning rate, of a few, that validates best on the tuning trials."""
        contender = self.contenders[label]
        if label in self.rates or len(self.sizes.lr_factors) == 1:
            return replace(contender, settings={**contender.settings, **self.rates.get(label, {})})
        tries = [contender.settings["lr"] * factor for factor in self.sizes.lr_factors]
        trials = range(TUNING_SEED, TUNING_SEED + self.sizes.tuning)
        runs = {
            lr: [self.run_of(replace(contender, settings={**contender.settings, "lr": lr}), s) for s in trials]
            for lr in tries
        }
        self.prepare([run for some in runs.values() for run in some])
        best = max(tries, key=lambda lr: fmean(validation_of(run, self) for run in runs[lr]))
        self.rates[label] = {"lr": best}
        self.at_edge |= {label} if best in (tries[0], tries[-1]) else set()
        return self.tuned(label)

    @property
    def seeds(self) -> range:
        return range(self.sizes.seeds)


def validation_of(config: RunConfig, bench: Bench) -> float:
    """The best mean accuracy of a run on the held-back parts of its sources; 0 if the run diverges."""
    try:
        records = bench.records(config)
    except NotFinite:
        return 0.0
    return max(_validation(record, config.test_domains) for record in records)


def _validation(record: Mapping[str, Any], test_domains: Sequence[int]) -> float:
    return fmean(a for k, a in enumerate(record["out_acc"]) if k not in test_domains)


def accuracy_of(records: Sequence[Mapping[str, Any]], test_domains: Sequence[int]) -> float:
    """Mean ``in_acc`` of the test domains at the first record with the best validation.

    >>> early = {"out_acc": [0.5, 0.9], "in_acc": [0.5, 0.7]}
    >>> late = {"out_acc": [0.8, 0.1], "in_acc": [0.9, 0.2]}
    >>> accuracy_of([early, late], [1])
    0.2
    """
    best = max(records, key=lambda record: _validation(record, test_domains))
    return fmean(best["in_acc"][k] for k in test_domains)


def differences(bench: Bench, ours: Contender, theirs: Mapping[str, Contender], **options: Any) -> Numbers:
    """Accuracy of one optimizer minus that of each other, in points, paired by seed."""
    bench.prepare([bench.run_of(one, s, **options) for one in (ours, *theirs.values()) for s in bench.seeds])
    mine = [bench.accuracy(bench.run_of(ours, s, **options)) for s in bench.seeds]
    return {
        name: [
            a - bench.accuracy(bench.run_of(other, s, **options))
            for a, s in zip(mine, bench.seeds, strict=True)
        ]
        for name, other in theirs.items()
    }
