"""The learning rate over a run, and the largest gradient: what a step is scaled by.

The factor on the learning rate is a function of the step alone, and it is taken off again after the step. So
checkpoints hold the learning rates themselves, a run that goes on needs no state of a schedule, and what an
algorithm's restart does to a learning rate stays.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.optim import Optimizer

from genie_dg.optim.passes import widened
from genie_dg.runs.config import RunConfig


def lr_factor(step: int, schedule: str, warmup: int, steps: int) -> float:
    r"""What the learning rate is multiplied by in a step.

    .. math::
        f_t = \frac{t + 1}{w} \quad (t < w), \qquad
        f_t = \tfrac12 (1 + \cos \pi s) \ \text{or} \ 1 - s \quad
        \text{with} \ s = \frac{t - w}{n - w} \quad (t \ge w)

    with w the steps of warm-up and n all steps; 0 would be reached in step n, which is not taken any more.

    Args:
        step: t, from 0.
        schedule: ``"cosine"``, ``"linear"`` or, for 1 after the warm-up, empty.
        warmup: w.
        steps: n.

    >>> [lr_factor(t, "linear", 2, 6) for t in range(6)]
    [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]
    """
    if step < warmup:
        return (step + 1) / warmup
    if not schedule:
        return 1.0
    share = (step - warmup) / (steps - warmup)
    return 1 - share if schedule == "linear" else (1 + math.cos(math.pi * share)) / 2


def lr_factor_of(config: RunConfig, step: int) -> float:
    """The factor of a run: after the warm-up it falls to ``final_lr`` in place of 0.

    >>> config = RunConfig("digits", (0,), steps=4, schedule="linear", final_lr=0.5)
    >>> [lr_factor_of(config, t) for t in range(4)]
    [1.0, 0.875, 0.75, 0.625]
    """
    factor = lr_factor(step, config.schedule, config.warmup, config.steps)
    return factor if step < config.warmup else config.final_lr + (1 - config.final_lr) * factor


@contextmanager
def scaled_lr(optimizer: Optimizer, factor: float) -> Iterator[None]:
    """Inside, the learning rate of every parameter group times a factor; afterwards what it was before.

    >>> optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.4)
    >>> with scaled_lr(optimizer, 0.5):
    ...     optimizer.param_groups[0]["lr"]
    0.2
    >>> optimizer.param_groups[0]["lr"]
    0.4
    """
    groups = optimizer.param_groups if factor != 1 else []
    before = [group["lr"] for group in groups]
    for group, lr in zip(groups, before, strict=True):
        group["lr"] = lr * factor
    try:
        yield
    finally:
        for group, lr in zip(groups, before, strict=True):
            group["lr"] = lr


def clip_gradients(optimizer: Optimizer, most: float) -> None:
    """Scale the gradient of all parameters of an optimizer down to the norm ``most`` where it is longer.

    A gradient with a graph is scaled with it, as if the loss were; 0 leaves everything as it is.

    >>> p = torch.nn.Parameter(torch.zeros(2))
    >>> p.grad = torch.tensor([3.0, 4.0])
    >>> clip_gradients(torch.optim.SGD([p]), 1.0)
    >>> [round(x, 4) for x in p.grad.tolist()]
    [0.6, 0.8]
    """
    params = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    if not most or not params:
        return
    lengths = [torch.linalg.vector_norm(widened(p.grad.detach())) for p in params]
    factor = (most / torch.linalg.vector_norm(torch.stack(lengths))).clamp(max=1.0)
    for p in params:
        if p.grad.requires_grad:
            p.grad = p.grad * factor
        else:
            p.grad.mul_(factor)
