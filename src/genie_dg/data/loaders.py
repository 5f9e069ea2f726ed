"""Batches: for training endless, augmented, the same for every optimizer; for evaluation each sample once.

No worker processes. Pictures come from a `Cache` where there is one and are decoded by threads otherwise; both
ways give the evaluation tensors of torchvision's transforms to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from genie_dg.check import whole_number

from .augment import GROUP, IMAGENET_MEAN, IMAGENET_STD, Recipe, draw
from .cache import Cache, EvalSpec
from .domains import DataError, Domain, Labels, TensorDomain
from .sampling import AUGMENTATION, InOrder, Sampler, stream
from .threads import shared_workers

Batch = tuple[Tensor, Tensor]


class Evaluation:
    """The samples of one domain once, in order, as batches of (float32 images, int64 labels).

    Args:
        domain: where samples come from.
        positions: which samples; by default all.
        size: pictures are resized to ``size`` by ``size``; samples in memory keep theirs.
        batch_size: pictures in a batch. The default keeps a batch of 224 pixels below 32 MB, which the
            allocator hands out again without asking the system for new pages.
        cache: made with ``EvalSpec(size)``; without it every picture is decoded every time.
        normalise: with ImageNet's mean and deviation (three channels only).
    """

    def __init__(
        self,
        domain: Domain,
        positions: Labels | None = None,
        *,
        size: int = 224,
        batch_size: int = 48,
        cache: Cache | None = None,
        normalise: bool = True,
    ) -> None:
        whole_number("batch_size", batch_size, error=DataError)
        if cache is not None and len(cache) != len(domain):
            raise DataError(
                f"The cache holds {len(cache)} pictures and {domain.name} {len(domain)}; open it again."
            )
        self.domain, self.cache, self.batch_size, self.spec = domain, cache, batch_size, EvalSpec(size)
        self.positions = np.arange(len(domain)) if positions is None else positions
        self._normalise, self._workers = normalise, shared_workers()

    def __len__(self) -> int:
        return -(-len(self.positions) // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        for start in range(0, len(self.positions), self.batch_size):
            rows = self.positions[start : start + self.batch_size]
            yield self._images(rows), torch.from_numpy(self.domain.labels[rows])

    def _images(self, rows: Labels) -> Tensor:
        if isinstance(self.domain, TensorDomain):
            return _scaled(self.domain.images[torch.from_numpy(rows)], self._normalise)
        out = torch.empty(len(rows), *self._pixels(int(rows[0])).shape)

        def fill(first: int) -> None:
            pixels = np.stack([self._pixels(int(i)) for i in rows[first : first + GROUP]])
            _scaled(torch.from_numpy(pixels), self._normalise, out[first : first + GROUP])

        self._workers.map(fill, range(0, len(rows), GROUP))
        return out

    def _pixels(self, index: int) -> Any:
        if self.cache is not None:
            return self.cache.row(index)
        sample = self.domain.read(index)
        return sample.numpy() if isinstance(sample, Tensor) else self.spec.pixels(sample.convert("RGB"))


_MEAN, _STD = (torch.tensor(values).view(3, 1, 1) for values in (IMAGENET_MEAN, IMAGENET_STD))


def _scaled(pixels: Tensor, normalise: bool, out: Tensor | None = None) -> Tensor:
    """From uint8 to what a network sees, with torchvision's roundings."""
    out = (torch.empty(pixels.shape) if out is None else out).copy_(pixels)
    if pixels.dtype == torch.uint8:
        out.div_(255)
    if normalise and out.shape[-3] == 3:
        out.sub_(_MEAN).div_(_STD)
    return out


class Training:
    """Endless batches, one for each training domain, as a list of (images, labels).

    The batch of a step is a function of seed, domain and step: the state is the step. ``at(step)`` is any step.

    Args:
        domains: the training domains.
        samplers: one for each; they hold seed, batch size and positions.
        recipe: the augmentation; ``None`` for none.
        caches: one for each domain, or ``None`` where pictures are decoded anew, made with ``TrainSpec``.
        normalise: with ImageNet's mean and deviation (three channels only).
        size: of pictures when there is no recipe.
    """

    def __init__(
        self,
        domains: Sequence[Domain],
        samplers: Sequence[Sampler | InOrder],
        *,
        recipe: Recipe | None = None,
        caches: Sequence[Cache | None] | None = None,
        normalise: bool = True,
        size: int = 224,
    ) -> None:
        if not domains or len(domains) != len(samplers):
            raise DataError(f"Got {len(domains)} domains and {len(samplers)} samplers; give one for each.")
        self.domains, self.samplers, self.recipe = list(domains), list(samplers), recipe
        self.caches = list(caches) if caches is not None else [None] * len(domains)
        self.spec, self.step, self.salt = EvalSpec(size), 0, 0
        self._normalise, self._workers = normalise, shared_workers()
        if recipe is not None:
            recipe.painter(normalise)  # says now what would be missing later

    def __iter__(self) -> Training:
        return self

    def __next__(self) -> list[Batch]:
        self.step += 1
        return self.at(self.step - 1)

    def at(self, step: int) -> list[Batch]:
        """The batches of one step."""
        return [self._batch(place, sampler.at(step), step) for place, sampler in enumerate(self.samplers)]

    def state_dict(self) -> dict[str, int]:
        return {"step": self.step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.step = int(state["step"])

    def _batch(self, place: int, rows: Labels, step: int) -> Batch:
        domain, cache = self.domains[place], self.caches[place]
        labels = torch.from_numpy(domain.labels[rows])
        if isinstance(domain, TensorDomain):
            return _scaled(domain.images[torch.from_numpy(rows)], self._normalise), labels
        if cache is not None and self.recipe is not None:
            pictures = [cache.row(int(i)) for i in rows]
        else:
            pictures = self._workers.map(lambda i: self._picture(place, int(i)), rows)
        if self.recipe is None:
            return _scaled(torch.from_numpy(np.stack(pictures)), self._normalise), labels
        sizes = np.array([p.shape[:2] for p in pictures]) if cache is None else cache.originals[rows]
        return self._augmented(self.recipe, pictures, sizes, self.samplers[place], step), labels

    def _augmented(
        self, recipe: Recipe, pictures: list[Any], sizes: Any, sampler: Sampler | InOrder, step: int
    ) -> Tensor:
        """Augmented pictures; ``sizes`` are those of the originals, of which smaller ones may be stored."""
        random = stream(sampler.seed + self.salt, AUGMENTATION, sampler.domain, step)
        draws = draw(recipe, sizes[:, 0], sizes[:, 1], random)
        out = torch.empty(len(pictures), 3, recipe.size, recipe.size)
        scales = np.array([p.shape[:2] for p in pictures]) / sizes

        def paint(first: int) -> None:
            painter = self._workers.mine(self, lambda: recipe.painter(self._normalise))
            group = slice(first, first + GROUP)
            tensors = [torch.from_numpy(p) for p in pictures[group]]
            painter.paint(tensors, draws, first, out[group], scales[group])

        self._workers.map(paint, range(0, len(pictures), GROUP))
        return out

    def _picture(self, place: int, index: int) -> Any:
        """One picture, decoded; already resized when there is no recipe."""
        picture = self.domains[place].read(index)
        if isinstance(picture, Tensor):
            return picture.permute(1, 2, 0).numpy() if self.recipe is not None else picture.numpy()
        return np.array(picture) if self.recipe is not None else self.spec.pixels(picture)


@contextmanager
def ahead(training: Training, steps: int) -> Iterator[Callable[[int], list[Batch]]]:
    """Batches by step, the next ones made by a thread while the network works on these.

    The batches are those of ``training.at``, whoever makes them. Samples in memory are taken as they are asked
    for: to make them ready costs more than they do.

    Args:
        training: whose batches.
        steps: no batch from here on is made ahead.
    """
    if all(isinstance(domain, TensorDomain) for domain in training.domains):
        yield training.at
        return
    waiting: dict[int, Future[list[Batch]]] = {}
    with ThreadPoolExecutor(1) as one:

        def at(step: int) -> list[Batch]:
            batches = waiting.pop(step).result() if step in waiting else training.at(step)
            waiting.clear()
            if step + 1 < steps:
                waiting[step + 1] = one.submit(training.at, step + 1)
            return batches

        yield at


class AugmentedEvaluation:
    """Each sample once, in order, but with the training augmentation, as DomainBed evaluates training domains.

    Args:
        domain: pictures in files.
        positions: which samples.
        seed: of the augmentation; ``at_step`` changes it, so that every evaluation draws anew.
        index: of the domain.
        cache: made with ``TrainSpec``, or ``None``.
    """

    def __init__(
        self,
        domain: Domain,
        positions: Labels,
        recipe: Recipe,
        *,
        batch_size: int = 48,
        seed: int = 0,
        index: int = 0,
        cache: Cache | None = None,
    ) -> None:
        self.domain, self.positions, self.batch_size = domain, positions, batch_size
        order = InOrder(positions, batch_size, seed, index)
        self._batches = Training([domain], [order], recipe=recipe, caches=[cache])

    def at_step(self, step: int) -> AugmentedEvaluation:
        """The same samples with the augmentation of training step ``step``."""
        self._batches.salt = (step + 1) * 1_000_003
        return self

    def __len__(self) -> int:
        return -(-len(self.positions) // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        return (self._batches.at(number)[0] for number in range(len(self)))
