"""Which training pictures a model takes for the most similar ones: cosine of the features."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from genie_dg.data.domains import Advance, DataError, Domain, DomainSet, silent

from .model import Model

MOST = 2000
"""Pictures in an index; of a larger set as many are taken, evenly."""
BATCH = 32


@dataclass(frozen=True)
class Neighbour:
    """A training picture: its place in the index, whose it is, and the cosine of its features."""

    place: int
    domain: str
    label: str
    cosine: float


class Examples:
    """An index of pictures, by the features of a model.

    Args:
        model: whose features.
        data: the pictures.
        most: how many are taken at most.
        progress: called with the number of pictures done.
    """

    def __init__(self, model: Model, data: DomainSet, most: int = MOST, progress: Advance = silent) -> None:
        every = [(domain, k) for domain in data.domains for k in range(len(domain))]
        chosen = np.unique(np.linspace(0, len(every) - 1, min(most, len(every))).round().astype(int))
        self.classes, self.total = data.classes, len(every)
        self.samples: list[tuple[Domain, int]] = []
        self.problems: list[str] = []
        rows = []
        for start in range(0, len(chosen), BATCH):
            some = [every[k] for k in chosen[start : start + BATCH]]
            samples = [sample for one in some if (sample := self._sample(model, *one)) is not None]
            if samples:
                rows.append(model.logits_and_features(model.normalised(torch.stack(samples)))[1])
            progress(len(some))
        if not rows:
            raise DataError(f"No picture of {data.name} can be read ({self.problems[0]}); name other examples.")
        self.features = normalize(torch.cat(rows).flatten(1))

    def _sample(self, model: Model, domain: Domain, index: int) -> Tensor | None:
        try:
            sample = model.sample(domain.read(index))
        except DataError as problem:
            self.problems.append(str(problem))
            return None
        self.samples.append((domain, index))
        return sample

    def __len__(self) -> int:
        return len(self.samples)

    def nearest(self, features: Tensor, count: int = 6) -> list[Neighbour]:
        """The pictures whose features have the largest cosine with those of one picture, the nearest first."""
        cosines = self.features @ normalize(features.flatten(), dim=0)
        order = torch.argsort(cosines, descending=True, stable=True)[:count].tolist()
        return [self._neighbour(place, float(cosines[place])) for place in order]

    def _neighbour(self, place: int, cosine: float) -> Neighbour:
        domain, index = self.samples[place]
        return Neighbour(place, domain.name, self.classes[int(domain.labels[index])], cosine)
