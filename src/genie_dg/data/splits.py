"""Which samples train and which judge, and which of them a step sees: DomainBed's seeded split and batches.

The split of a domain depends on the trial, the index of the domain and the number of its samples alone, so the
order of samples (see `image_folders`) is part of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from genie_dg.check import whole_number
from genie_dg.facts import seed_hash

from .domains import DataError, DomainSet, Labels

_HOLDOUT = 0.2
"""The share of a domain that DomainBed holds out."""


@dataclass(frozen=True)
class DomainSplit:
    """Positions of the samples of one domain: ``inside`` trains (80 %), ``outside`` validates (20 %)."""

    inside: Labels
    outside: Labels


def split(count: int, trial: int, domain: int) -> DomainSplit:
    """The split of a domain of ``count`` samples, by the trial's seed and the index of the domain.

    >>> parts = split(2048, trial=0, domain=0)
    >>> parts.outside[:5].tolist(), len(parts.inside), len(parts.outside)
    ([548, 677, 1997, 977, 1553], 1639, 409)
    """
    keys = np.arange(count, dtype=np.int64)
    np.random.RandomState(seed_hash(trial, domain)).shuffle(keys)
    out = int(count * _HOLDOUT)
    return DomainSplit(inside=keys[out:], outside=keys[:out])


def splits(domains: DomainSet, trial: int) -> list[DomainSplit]:
    """The split of every domain of a set."""
    return [split(len(domain), trial, index) for index, domain in enumerate(domains.domains)]


def stream(seed: int, purpose: int, domain: int, step: int) -> np.random.Generator:
    """Random numbers that belong to one use in one step; purpose keeps different uses apart."""
    key = [seed % 2**64, purpose * 2**32 + domain]
    return np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 0, step]))


INDICES, AUGMENTATION = 1, 2
"""Purposes of `stream`."""


@dataclass(frozen=True)
class Sampler:
    """Endless batches of positions out of one domain, with replacement, as DomainBed draws them.

    A counter-based generator makes each batch: what a step trains on is a pure function of seed, domain and
    step, and two runs with different optimizers see the same batches.

    Args:
        positions: the samples that may be drawn, such as the ``inside`` of a split.
        batch_size: how many a step draws.
        seed: of the run's batch order.
        domain: index of the domain, so that domains draw independently.

    >>> Sampler(np.arange(100), batch_size=4, seed=0, domain=1).at(0).tolist()
    [28, 43, 81, 50]
    """

    positions: Labels
    batch_size: int
    seed: int
    domain: int

    def __post_init__(self) -> None:
        whole_number("batch_size", self.batch_size, error=DataError)
        if len(self.positions) == 0:
            raise DataError(f"Domain {self.domain} has no sample to draw; give at least one position.")

    def at(self, step: int) -> Labels:
        """The positions that step ``step`` trains on."""
        random = stream(self.seed, INDICES, self.domain, step)
        drawn: Labels = self.positions[random.integers(len(self.positions), size=self.batch_size)]
        return drawn


@dataclass(frozen=True)
class InOrder:
    """Each sample once, in order: what an evaluation with augmentation draws from.

    >>> InOrder(np.arange(5), batch_size=2, seed=0, domain=0).at(2).tolist()
    [4]
    """

    positions: Labels
    batch_size: int
    seed: int
    domain: int

    def at(self, step: int) -> Labels:
        """Batch number ``step``."""
        return self.positions[step * self.batch_size : (step + 1) * self.batch_size]
