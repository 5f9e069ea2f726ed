"""How right a model is on the splits of every domain."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from genie_dg.algorithms.algorithm import Algorithm

from .parallel import World
from .step import ALONE


@dataclass(frozen=True)
class Score:
    """Accuracy from 0 to 1, and mean cross-entropy."""

    accuracy: float
    loss: float


def on_device(images: Tensor, device: torch.device | str, layout: torch.memory_format) -> Tensor:
    """Images on a device, in a layout; other samples than images have no layout."""
    images = images.to(device)
    return images.contiguous(memory_format=layout) if images.dim() == 4 else images


@torch.no_grad()
def score(
    algorithm: Algorithm,
    batches: Iterable[tuple[Tensor, Tensor]],
    device: torch.device | str = "cpu",
    world: World = ALONE,
    layout: torch.memory_format = torch.contiguous_format,
) -> Score:
    """Accuracy and loss over batches, in evaluation mode; the mode is put back.

    The count of right answers is exact; losses are summed in float64, in the order of the batches. Several
    processes share the batches.
    """
    was = algorithm.training
    algorithm.eval()
    right, total, loss = 0, 0, 0.0
    for images, labels in world.mine(batches):
        images, labels = on_device(images, device, layout), labels.to(device)
        logits = algorithm.predict(images)
        right += int((logits.argmax(1) == labels).sum())
        loss += float(cross_entropy(logits.cpu().double(), labels.cpu(), reduction="sum"))
        total += len(labels)
    algorithm.train(was)
    all_right, all_loss, count = world.sum(right, loss, total)
    return Score(all_right / count, all_loss / count)
