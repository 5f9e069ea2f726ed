"""Batches: for training endless, augmented, the same for every optimizer; for evaluation each sample once.

No worker processes. Pictures come from a `Cache` where there is one and are decoded by threads otherwise; both
ways give the evaluation tensors of torchvision's transforms to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from genie_dg.check import whole_number

from .augment import GROUP, Recipe, draw_changes
from .cache import Cache, EvalSpec
from .domains import DataError, Domain, Labels, TensorDomain
from .place import Destination, LabelledBatch, Scale, opencv, shared_workers
from .splits import AUGMENTATION, InOrder, Sampler, stream

_HERE = Destination()
"""This computer's memory, planes of channels."""
_SCALED_TOGETHER = 600_000
"""Values that are scaled together: few calls, and what the first one wrote is still at hand for the next."""
_ResultT = TypeVar("_ResultT")


class Evaluation:
    """The samples of one domain once, in order, as batches of (float32 images, int64 labels).

    Args:
        domain: where samples come from.
        positions: which samples; by default all.
        size: pictures are resized to ``size`` by ``size``; samples in memory keep theirs.
        batch_size: pictures in a batch. The default keeps a batch of 224 pixels below 32 MB, which the
            allocator hands out again without asking the system for new pages.
        cache: made with ``EvalSpec(size)``; without it every picture is decoded every time.
        place: where the network gets them.
    """

    def __init__(
        self,
        domain: Domain,
        positions: Labels | None = None,
        *,
        size: int = 224,
        batch_size: int = 48,
        cache: Cache | None = None,
        place: Destination = _HERE,
    ) -> None:
        whole_number("batch_size", batch_size, error=DataError)
        self.domain, self.cache, self.batch_size, self.spec = domain, cache, batch_size, EvalSpec(size)
        self.positions = np.arange(len(domain)) if positions is None else positions
        self._scale, self._place, self._workers = Scale.of(domain), place, shared_workers()

    def __len__(self) -> int:
        return -(-len(self.positions) // self.batch_size)

    def __iter__(self) -> Iterator[LabelledBatch]:
        if isinstance(self.domain, TensorDomain):
            yield from map(self._batch, range(len(self)))
            return
        with _made_ahead(self._batch, len(self)) as batch:
            for number in range(len(self)):
                yield batch(number)

    def _batch(self, number: int) -> LabelledBatch:
        rows = self.positions[number * self.batch_size : (number + 1) * self.batch_size]
        labels = torch.from_numpy(self.domain.labels[rows])
        if isinstance(self.domain, TensorDomain):
            return self._place.brought(self.domain.images[torch.from_numpy(rows)], labels, self._scale)
        size = self.spec.size
        out = self._place.empty(len(rows), 3, size, size)
        together = max(1, _SCALED_TOGETHER // (3 * size * size))

        def fill(first: int) -> None:
            group = slice(first, first + together)
            for i, picture in zip(rows[group], out[group], strict=True):
                self._write(self._pixels(int(i)), picture)
            if out.dtype != torch.uint8:
                self._scale.apply_(out[group])

        self._workers.map(fill, range(0, len(rows), together))
        return self._place.brought(out, labels, self._scale if self._place.as_bytes else None)

    def _write(self, planes: Any, out: Tensor) -> None:
        """Bytes of one picture to where they go; where that is channels last, OpenCV is quick to turn them."""
        if out.is_contiguous() or opencv() is None:
            out.copy_(torch.from_numpy(planes))
            return
        turned = self._workers.mine(self, lambda: np.empty((*planes.shape[1:], 3), np.uint8))
        opencv().merge(list(planes), dst=turned)
        out.permute(1, 2, 0).copy_(torch.from_numpy(turned))

    def _pixels(self, index: int) -> Any:
        if self.cache is not None:
            return self.cache.row(index)
        picture: Any = self.domain.read(index)
        return self.spec.pixels(picture)


class _Prepared(NamedTuple):
    """The batch of a domain: ready to go to the network when the work is done, to be scaled there or not."""

    samples: Tensor
    labels: Tensor
    scale: Scale | None
    work: Sequence[Callable[[], None]] = ()


class Training:
    """Endless batches, one for each training domain, as a list of (images, labels).

    The batch of a step is a function of seed, domain and step: ``step`` is the whole state, ``at(step)`` any
    step.

    Args:
        domains: the training domains.
        samplers: one for each; they hold seed, batch size and positions.
        recipe: the augmentation; ``None`` for none.
        caches: one for each domain, or ``None`` where pictures are decoded anew, made with ``TrainSpec``.
        size: of pictures when there is no recipe.
        place: where the network gets them.
    """

    def __init__(
        self,
        domains: Sequence[Domain],
        samplers: Sequence[Sampler | InOrder],
        *,
        recipe: Recipe | None = None,
        caches: Sequence[Cache | None] | None = None,
        size: int = 224,
        place: Destination = _HERE,
    ) -> None:
        if not domains or len(domains) != len(samplers):
            raise DataError(f"Got {len(domains)} domains and {len(samplers)} samplers; give one for each.")
        self.domains, self.samplers, self.recipe = list(domains), list(samplers), recipe
        self.caches = list(caches) if caches is not None else [None] * len(domains)
        self.spec, self.step, self.salt = EvalSpec(size), 0, 0
        self._place, self._workers = place, shared_workers()
        if recipe is not None:
            recipe.painter()  # says now what would be missing later

    def __iter__(self) -> Training:
        return self

    def __next__(self) -> list[LabelledBatch]:
        self.step += 1
        return self.at(self.step - 1)

    def at(self, step: int) -> list[LabelledBatch]:
        """The batches of one step; the pictures of all domains are worked on side by side."""
        prepared = [self._prepare(place, sampler.at(step), step) for place, sampler in enumerate(self.samplers)]
        self._workers.map(lambda paint: paint(), [paint for one in prepared for paint in one.work])
        return [self._place.brought(one.samples, one.labels, one.scale) for one in prepared]

    def _prepare(self, place: int, rows: Labels, step: int) -> _Prepared:
        domain, cache = self.domains[place], self.caches[place]
        plain = Scale.of(domain)
        labels = torch.from_numpy(domain.labels[rows])
        if isinstance(domain, TensorDomain):
            return _Prepared(domain.images[torch.from_numpy(rows)], labels, plain)
        if cache is not None and self.recipe is not None:
            pictures = [cache.row(int(i)) for i in rows]
        else:
            pictures = self._workers.map(lambda i: self._picture(place, int(i)), rows)
        if self.recipe is None:
            return _Prepared(torch.from_numpy(np.stack(pictures)), labels, plain)
        sizes = np.array([p.shape[:2] for p in pictures]) if cache is None else cache.originals[rows]
        return self._augmented(self.recipe, pictures, sizes, labels, self.samplers[place], step)

    def _augmented(
        self,
        recipe: Recipe,
        pictures: list[Any],
        sizes: Any,
        labels: Tensor,
        sampler: Sampler | InOrder,
        step: int,
    ) -> _Prepared:
        """Augmented pictures; ``sizes`` are those of the originals, of which smaller ones may be stored."""
        random = stream(sampler.seed + self.salt, AUGMENTATION, sampler.domain, step)
        draws = draw_changes(recipe, sizes[:, 0], sizes[:, 1], random)
        out = self._place.empty(len(pictures), 3, recipe.size, recipe.size)
        scales = np.array([p.shape[:2] for p in pictures]) / sizes

        def paint(first: int) -> None:
            painter = self._workers.mine(self, recipe.painter)
            group = slice(first, first + GROUP)
            tensors = [torch.from_numpy(p) for p in pictures[group]]
            painter.paint(tensors, draws, first, out[group], scales[group])

        work = [partial(paint, first) for first in range(0, len(pictures), GROUP)]
        return _Prepared(out, labels, Scale(folded=True) if self._place.as_bytes else None, work)

    def _picture(self, place: int, index: int) -> Any:
        """One picture, decoded; already resized when there is no recipe."""
        picture: Any = self.domains[place].read(index)
        return np.array(picture) if self.recipe is not None else self.spec.pixels(picture)


@contextmanager
def ahead(training: Training, steps: int) -> Iterator[Callable[[int], list[LabelledBatch]]]:
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
    with _made_ahead(training.at, steps) as at:
        yield at


@contextmanager
def _made_ahead(make: Callable[[int], _ResultT], count: int) -> Iterator[Callable[[int], _ResultT]]:
    """What ``make`` gives for a number; that of the next number is made by a thread in the meantime."""
    waiting: dict[int, Future[_ResultT]] = {}
    with ThreadPoolExecutor(1) as one:

        def at(number: int) -> _ResultT:
            result = waiting.pop(number).result() if number in waiting else make(number)
            waiting.clear()
            if number + 1 < count:
                waiting[number + 1] = one.submit(make, number + 1)
            return result

        yield at


class AugmentedEvaluation:
    """Each sample once, in order, but with the training augmentation, as DomainBed evaluates training domains.

    Args:
        domain: pictures that are decoded.
        order: which samples in which batches; its seed is that of the augmentation, and ``at_step`` changes it,
            so
            that every evaluation draws anew.
        recipe: the augmentation.
        cache: made with ``TrainSpec``, or ``None``.
        place: where the network gets them.
    """

    def __init__(
        self,
        domain: Domain,
        order: InOrder,
        recipe: Recipe,
        *,
        cache: Cache | None = None,
        place: Destination = _HERE,
    ) -> None:
        self.domain, self.positions, self.batch_size = domain, order.positions, order.batch_size
        self._batches = Training([domain], [order], recipe=recipe, caches=[cache], place=place)

    def at_step(self, step: int) -> AugmentedEvaluation:
        """The same samples with the augmentation of training step ``step``."""
        self._batches.salt = (step + 1) * 1_000_003
        return self

    def __len__(self) -> int:
        return -(-len(self.positions) // self.batch_size)

    def __iter__(self) -> Iterator[LabelledBatch]:
        with _made_ahead(self._batches.at, len(self)) as batches:
            for number in range(len(self)):
                yield batches(number)[0]
