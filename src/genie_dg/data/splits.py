"""Which samples train and which judge: DomainBed's seeded split, and the tasks that leave domains out.

The split of a domain depends on the trial, the index of the domain and the number of its samples alone, so the
order of samples (see `image_folders`) is part of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from genie_dg.check import number
from genie_dg.facts import seed_hash

from .domains import DataError, DomainSet, Labels

HOLDOUT = 0.2
"""The share of a domain that DomainBed holds out."""


@dataclass(frozen=True)
class Split:
    """Positions of the samples of one domain: ``inside`` trains (80 %), ``outside`` validates (20 %)."""

    inside: Labels
    outside: Labels


def split(count: int, trial: int, domain: int, holdout: float = HOLDOUT) -> Split:
    """The split of a domain of ``count`` samples, by the trial's seed and the index of the domain.

    >>> parts = split(2048, trial=0, domain=0)
    >>> parts.outside[:5].tolist(), len(parts.inside), len(parts.outside)
    ([548, 677, 1997, 977, 1553], 1639, 409)
    """
    number("holdout", holdout, 0, 1, open_high=True, error=DataError)
    keys = np.arange(count, dtype=np.int64)
    np.random.RandomState(seed_hash(trial, domain)).shuffle(keys)
    out = int(count * holdout)
    return Split(inside=keys[out:], outside=keys[:out])


def splits(domains: DomainSet, trial: int, holdout: float = HOLDOUT) -> list[Split]:
    """The split of every domain of a set."""
    return [split(len(domain), trial, index, holdout) for index, domain in enumerate(domains.domains)]


@dataclass(frozen=True)
class Task:
    """Which domains train and which are unseen, by index."""

    sources: tuple[int, ...]
    targets: tuple[int, ...]


def leave_out(count: int, how_many: int = 1) -> list[Task]:
    """Every task that leaves ``how_many`` of ``count`` domains out.

    >>> [task.targets for task in leave_out(3)], len(leave_out(4, 2))
    ([(0,), (1,), (2,)], 6)
    """
    if not 1 <= how_many < count:
        raise DataError(
            f"Leaving {how_many} of {count} domains out leaves none to train on or none to test on; "
            f"with {count} domains the choice is 1 to {max(count - 1, 0)}."
        )
    out = combinations(range(count), how_many)
    return [Task(tuple(i for i in range(count) if i not in targets), targets) for targets in out]


def single_source(count: int) -> list[Task]:
    """Every task that trains on one domain and tests on all others.

    >>> [(task.sources, task.targets) for task in single_source(3)][1]
    ((1,), (0, 2))
    """
    if count < 2:
        raise DataError(f"There is {count} domain, and single-source tasks test on others; give two or more.")
    return [Task((i,), tuple(j for j in range(count) if j != i)) for i in range(count)]
