"""One training run of the demo: the split, the network, the batches, the loop.

What a run sees depends on (held-out angle, seed) and never on the optimizer: the split, the initial weights
and the batches each have a generator of their own, so that optimizers are compared in pairs.
"""

from __future__ import annotations

import statistics
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from genie_dg import GENIE
from genie_dg.data.digits import Domain

PER_DOMAIN = 8
"""Images of each training domain in a batch."""

VALIDATION_SHARE = 0.2
"""Share of each training domain that is held back to choose the learning rate."""


class Recipe(NamedTuple):
    """An optimizer, the learning rates to choose from and how to build it from (parameters, rate, seed)."""

    label: str
    rates: tuple[float, ...]
    build: Callable[[Iterable[nn.Parameter], float, int], torch.optim.Optimizer]


# Three rates each, a factor of about three apart, with the middle one the best on validation data in a pilot.
# The network starts from random weights, so GENIE's rates lie above 0.015, its default for fine-tuning.
RECIPES = {
    "sgd": Recipe("SGD", (0.03, 0.1, 0.3), lambda p, lr, seed: torch.optim.SGD(p, lr, momentum=0.9)),
    "adam": Recipe("Adam", (0.003, 0.01, 0.03), lambda p, lr, seed: torch.optim.Adam(p, lr)),
    "genie": Recipe("GENIE", (0.3, 1.0, 3.0), lambda p, lr, seed: GENIE(p, lr, seed=seed)),
}


class Split(NamedTuple):
    """What one run trains on, chooses with and is judged by; each pair is (images, labels)."""

    training: list[tuple[Tensor, Tensor]]  # one pair for each training domain
    validation: tuple[Tensor, Tensor]
    held_out: tuple[Tensor, Tensor]


class Outcome(NamedTuple):
    """What one run leaves behind: accuracies in percent, and the median time of an optimizer step."""

    validation: float
    held_out: float
    step_ms: float
    gauges: dict[str, float]  # empty for optimizers that have none


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread: faster for tensors this small, and sums have one order on every machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def stream(name: str, held_out: float, seed: int) -> torch.Generator:
    """A generator that belongs to one purpose of one (held-out angle, seed)."""
    return torch.Generator().manual_seed(zlib.crc32(f"{name}/{held_out:g}/{seed}".encode()))


def split(domains: Sequence[Domain], held_out: float, seed: int) -> Split:
    """Leave one domain out whole and hold back a fifth of each of the others."""
    generator = stream("split", held_out, seed)
    training, kept_images, kept_labels = [], [], []
    (target,) = (domain for domain in domains if domain.angle == held_out)
    for domain in domains:
        if domain is target:
            continue
        order = torch.randperm(len(domain.labels), generator=generator)
        kept, used = order.tensor_split([round(VALIDATION_SHARE * len(order))])
        training.append((domain.images[used], domain.labels[used]))
        kept_images.append(domain.images[kept])
        kept_labels.append(domain.labels[kept])
    return Split(training, (torch.cat(kept_images), torch.cat(kept_labels)), (target.images, target.labels))


def network(held_out: float, seed: int) -> nn.Module:
    """Two convolutions and a linear layer, 6090 weights. The global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.random.manual_seed(stream("weights", held_out, seed).initial_seed())
        return nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(128, 10),
        )


def batch_order(size: int, steps: int, generator: torch.Generator) -> Tensor:
    """Positions in a domain, ``[steps, PER_DOMAIN]``: one shuffled pass after another."""
    passes = -(-steps * PER_DOMAIN // size)
    order = torch.cat([torch.randperm(size, generator=generator) for _ in range(passes)])
    return order[: steps * PER_DOMAIN].reshape(steps, PER_DOMAIN)


def accuracy(model: nn.Module, pair: tuple[Tensor, Tensor]) -> float:
    """Percent of the images that the model names rightly."""
    images, labels = pair
    with torch.no_grad():
        right = int((model(images).argmax(dim=1) == labels).sum())
    return 100.0 * right / len(labels)


def train(data: Split, recipe: Recipe, rate: float, held_out: float, seed: int, steps: int) -> Outcome:
    """Train on the training domains with equal shares in each batch, then measure once at the end."""
    model = network(held_out, seed)
    optimizer = recipe.build(model.parameters(), rate, seed)
    generator = stream("batches", held_out, seed)
    orders = [batch_order(len(labels), steps, generator) for _, labels in data.training]
    seconds = []
    for step in range(steps):
        chosen = [(x[order[step]], y[order[step]]) for (x, y), order in zip(data.training, orders, strict=True)]
        images, labels = (torch.cat(parts) for parts in zip(*chosen, strict=True))
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()  # type: ignore[no-untyped-call]
        start = time.perf_counter()
        optimizer.step()
        seconds.append(time.perf_counter() - start)
    gauges = optimizer.gauges() if isinstance(optimizer, GENIE) else {}
    return Outcome(
        accuracy(model, data.validation),
        accuracy(model, data.held_out),
        1e3 * statistics.median(seconds),
        gauges,
    )
