"""Which samples a step trains on: a pure function of seed, domain and step.

DomainBed draws from every training domain with replacement, without end. Here a counter-based generator makes
each batch: the state of a sampler is one number, and two runs with different optimizers see the same batches.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from genie_dg.check import whole_number

from .domains import DataError, Labels


def stream(seed: int, purpose: int, domain: int, step: int) -> np.random.Generator:
    """Random numbers that belong to one use in one step; purpose keeps different uses apart."""
    key = [seed % 2**64, purpose * 2**32 + domain]
    return np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 0, step]))


INDICES, AUGMENTATION = 1, 2
"""Purposes of `stream`."""


@dataclass
class Sampler:
    """Endless batches of positions out of one domain, with replacement.

    Args:
        positions: the samples that may be drawn, such as the ``inside`` of a split.
        batch_size: how many a step draws.
        seed: of the run's batch order.
        domain: index of the domain, so that domains draw independently.
        labels: with these, every class is drawn equally often, whatever its size.
        step: the next step; the whole state.

    >>> sampler = Sampler(np.arange(100), batch_size=4, seed=0, domain=1)
    >>> first, second = next(sampler), next(sampler)
    >>> sampler.load_state_dict({"step": 1})
    >>> bool((next(sampler) == second).all())
    True
    """

    positions: Labels
    batch_size: int
    seed: int
    domain: int
    labels: Labels | None = None
    step: int = 0
    _classes: list[Labels] = field(init=False, repr=False, default_factory=list)

    def __post_init__(self) -> None:
        whole_number("batch_size", self.batch_size, error=DataError)
        if len(self.positions) == 0:
            raise DataError(f"Domain {self.domain} has no sample to draw; give at least one position.")
        if self.labels is not None:
            chosen = self.labels[self.positions]
            self._classes = [self.positions[chosen == k] for k in np.unique(chosen)]

    def at(self, step: int) -> Labels:
        """The positions that step ``step`` trains on."""
        random = stream(self.seed, INDICES, self.domain, step)
        if not self._classes:
            drawn: Labels = self.positions[random.integers(len(self.positions), size=self.batch_size)]
            return drawn
        classes = random.integers(len(self._classes), size=self.batch_size)
        places = random.random(self.batch_size)
        chosen = [(self._classes[k], u) for k, u in zip(classes, places, strict=True)]
        return np.array([members[int(u * len(members))] for members, u in chosen])

    def __iter__(self) -> Sampler:
        return self

    def __next__(self) -> Labels:
        self.step += 1
        return self.at(self.step - 1)

    def state_dict(self) -> dict[str, int]:
        return {"step": self.step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.step = int(state["step"])


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
