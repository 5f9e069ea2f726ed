"""How right a model is on the splits of every domain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch.nn.functional import cross_entropy

from genie_dg.algorithms.algorithm import Algorithm
from genie_dg.data.place import LabelledBatch

from .parallel import World
from .step import ALONE


@dataclass(frozen=True)
class Score:
    """Accuracy from 0 to 1, and mean cross-entropy."""

    accuracy: float
    loss: float


def score(algorithm: Algorithm, batches: Iterable[LabelledBatch], world: World = ALONE) -> Score:
    """Accuracy and loss over batches, in evaluation mode; the mode is put back.

    The count of right answers is exact; losses are summed in float64, in the order of the batches. Several
    processes share the batches.

    Args:
        algorithm: what is evaluated.
        batches: where the algorithm is.
        world: the processes.
    """
    was = algorithm.training
    algorithm.eval()
    right, total, loss = 0, 0, 0.0
    for logits, labels in _answers(algorithm, world.mine(batches)):
        right += int((logits.argmax(1) == labels).sum())
        loss += float(cross_entropy(logits.cpu().double(), labels.cpu(), reduction="sum"))
        total += len(labels)
    algorithm.train(was)
    all_right, all_loss, count = world.sum(right, loss, total)
    return Score(all_right / count, all_loss / count)


def _answers(algorithm: Algorithm, batches: Iterable[LabelledBatch]) -> Iterator[LabelledBatch]:
    """Logits and labels of every batch, one batch late: a device is asked for more before it is waited for."""
    last: LabelledBatch | None = None
    for images, labels in batches:
        with torch.inference_mode():
            logits = algorithm.predict(images)
        if last is not None:
            yield last
        last = logits, labels
    if last is not None:
        yield last
