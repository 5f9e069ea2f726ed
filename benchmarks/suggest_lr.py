"""How near `genie_dg.optim.suggest_lr` comes to the best rate of a grid.

Five tasks, each with GENIE, SGD (momentum 0.9) and Adam; three constants were set after looking at some of
them. The grid trains 300 steps at every rate, on two seeds near the best, and ranks rates by the mean training
loss of the last 30 steps; the best by validation loss is printed beside it. The suggestion comes from a third
seed.

    python benchmarks/suggest_lr.py                          # all, half an hour or more on one core
    python benchmarks/suggest_lr.py --tasks tabular --optimizers genie
"""

from __future__ import annotations

import argparse
import inspect
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from genie_dg.optim import GENIE, suggest_lr

STEPS, LAST = 300, 30
Batch = tuple[Tensor, Tensor]
OPTIMIZERS: dict[str, Callable[[Any, float], torch.optim.Optimizer]] = {
    "genie": lambda params, lr: GENIE(params, lr=lr),
    "sgd": lambda params, lr: torch.optim.SGD(params, lr=lr, momentum=0.9),
    "adam": lambda params, lr: torch.optim.Adam(params, lr=lr),
}
LOWEST = {"genie": -7, "sgd": -7, "adam": -5}
HIGHEST = {"genie": 2, "sgd": 1, "adam": 1}
"""The ends of the grid, as powers of ten."""


@dataclass(frozen=True)
class Task:
    """A model to train, its loss, and samples to train and to validate with."""

    build: Callable[[], nn.Module]
    loss: Callable[[nn.Module, Batch], Tensor]
    train: Batch
    validate: Batch
    size: int

    def batches(self, seed: int, count: int = STEPS) -> list[Batch]:
        stream = torch.Generator().manual_seed(seed)
        rows = [torch.randint(len(self.train[0]), (self.size,), generator=stream) for _ in range(count)]
        return [(self.train[0][row], self.train[1][row]) for row in rows]


def digits(seed: int = 0) -> Batch:
    from sklearn.datasets import load_digits

    found = load_digits()
    images = torch.tensor(found.images, dtype=torch.float32).unsqueeze(1) / 16
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    return images[order], torch.tensor(found.target)[order].long()


def classify(model: nn.Module, batch: Batch) -> Tensor:
    logits = model(batch[0])
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), batch[1].reshape(-1))


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def convolutions() -> nn.Module:
    first = [nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    second = [nn.Conv2d(12, 24, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(96, 10))


def digits_task(build: Callable[[], nn.Module]) -> Task:
    images, labels = digits()
    return Task(build, classify, (images[:1400], labels[:1400]), (images[1400:], labels[1400:]), 32)


def fine_tuning() -> Task:
    """A network that knows upright digits learns digits that lie on their side."""
    images, labels = digits()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = convolutions()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for batch in Task(convolutions, classify, (images[:700], labels[:700]), (images, labels), 32).batches(5):
        optimizer.zero_grad()
        classify(model, batch).backward()
        optimizer.step()
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    turned = images.transpose(-1, -2).contiguous()

    def build() -> nn.Module:
        copy = convolutions()
        copy.load_state_dict(weights)
        return copy

    return Task(build, classify, (turned[700:1400], labels[700:1400]), (turned[1400:], labels[1400:]), 32)


class Transformer(nn.Module):
    """One causal block over characters."""

    def __init__(self, characters: int, width: int = 32, length: int = 24) -> None:
        super().__init__()
        self.characters = nn.Embedding(characters, width)
        self.places = nn.Parameter(0.02 * torch.randn(length, width))
        self.block = nn.TransformerEncoderLayer(width, 2, 64, 0.0, batch_first=True, norm_first=True)
        self.head = nn.Linear(width, characters)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length))

    def forward(self, text: Tensor) -> Tensor:
        return self.head(self.block(self.characters(text) + self.places, src_mask=self.mask))


def characters() -> Task:
    """The next character of Python's source of argparse."""
    text = inspect.getsource(argparse)[:60_000]
    known = sorted(set(text))
    codes = torch.tensor([known.index(c) for c in text]).unfold(0, 25, 7)
    x, y = codes[:, :-1].contiguous(), codes[:, 1:].contiguous()
    most = len(x) * 4 // 5
    return Task(lambda: Transformer(len(known)), classify, (x[:most], y[:most]), (x[most:], y[most:]), 16)


def tabular() -> Task:
    """Diabetes, with the target as it is: squared errors in the thousands."""
    from sklearn.datasets import load_diabetes

    found = load_diabetes(scaled=False)
    x = torch.tensor(found.data, dtype=torch.float32)
    x = (x - x.mean(0)) / x.std(0)
    y = torch.tensor(found.target, dtype=torch.float32).unsqueeze(1)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    x, y = x[order], y[order]

    def build() -> nn.Module:
        return nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))

    return Task(build, lambda m, b: F.mse_loss(m(b[0]), b[1]), (x[:350], y[:350]), (x[350:], y[350:]), 32)


TASKS: dict[str, Callable[[], Task]] = {
    "digits MLP": lambda: digits_task(perceptron),
    "digits CNN": lambda: digits_task(convolutions),
    "characters": characters,
    "tabular": tabular,
    "fine-tuning": fine_tuning,
}


def train(task: Task, optimizer: str, lr: float, seed: int) -> tuple[float, float]:
    """The training loss of the last steps and the validation loss; infinite where a loss is not finite."""
    torch.manual_seed(seed)
    model = task.build()
    stepper = OPTIMIZERS[optimizer](model.parameters(), lr)
    losses: list[float] = []
    for batch in task.batches(seed + 100):
        stepper.zero_grad()
        loss = task.loss(model, batch)
        losses.append(loss.item())
        if not math.isfinite(losses[-1]) or losses[-1] > 100 * losses[0]:
            return math.inf, math.inf
        loss.backward()
        stepper.step()
    with torch.no_grad():
        return sum(losses[-LAST:]) / LAST, task.loss(model, task.validate).item()


def grid(task: Task, optimizer: str) -> dict[float, tuple[float, float]]:
    """Mean losses by the power of ten of the rate: two thirds apart, and a third near the best."""
    thirds = range(3 * LOWEST[optimizer], 3 * HIGHEST[optimizer] + 1, 2)
    first = {k: train(task, optimizer, 10 ** (k / 3), 0) for k in thirds}
    best = {min(first, key=lambda k, part=part: first[k][part]) for part in (0, 1)}  # type: ignore[misc]
    near = sorted({k + d for k in best for d in (-2, -1, 0, 1, 2)})
    one = {k: first[k] if k in first else train(task, optimizer, 10 ** (k / 3), 0) for k in near}
    two = {k: train(task, optimizer, 10 ** (k / 3), 1) for k in near}
    return {k / 3: ((one[k][0] + two[k][0]) / 2, (one[k][1] + two[k][1]) / 2) for k in near}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--optimizers", nargs="+", default=list(OPTIMIZERS), choices=list(OPTIMIZERS))
    parser.add_argument("--steps", type=int, default=100, help="of each short training of suggest_lr")
    given = parser.parse_args()
    torch.set_num_threads(1)
    columns = "task, optimizer, best by training, by validation, suggested, / training, / validation, "
    columns += "loss at best, at suggested, steps, seconds"
    print(f"| {columns.replace(', ', ' | ')} |\n|" + "---|" * 11, flush=True)
    for name in given.tasks:
        task = TASKS[name]()
        for optimizer in given.optimizers:
            results = grid(task, optimizer)
            by_loss, by_validation = (10 ** min(results, key=lambda k, p=p: results[k][p]) for p in (0, 1))  # type: ignore[misc]
            torch.manual_seed(2)
            model, began = task.build(), time.perf_counter()
            found = suggest_lr(model, task.loss, task.batches(102), OPTIMIZERS[optimizer], steps=given.steps)
            spent = time.perf_counter() - began
            lowest = min(loss for loss, _ in results.values())
            reached = sum(train(task, optimizer, found.lr, seed)[0] for seed in (0, 1)) / 2
            print(
                f"| {name} | {optimizer} | {by_loss:.2g} | {by_validation:.2g} | {found.lr:g} | "
                f"{found.lr / by_loss:.2g} | {found.lr / by_validation:.2g} | {lowest:.3g} | {reached:.3g} | "
                f"{found.steps} | {spent:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
