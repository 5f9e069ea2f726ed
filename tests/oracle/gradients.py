"""Slow twins of the instruments: one backward for each sample, plain Python numbers, formulas written out.

Nothing here uses torch.func, streaming, chunks or the package. A gradient is a flat list of floats.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from itertools import permutations

import torch
from torch import Tensor, nn

Gradient = list[float]


def flat_gradient(model: nn.Module, loss: Callable[..., Tensor], batch: tuple[Tensor, ...]) -> Gradient:
    """The gradient of the trainable parameters of a copy in eval mode."""
    model = copy.deepcopy(model).eval()
    model.zero_grad()
    loss(model, *batch).backward()
    trainable = [p for p in model.parameters() if p.requires_grad]
    return [x for p in trainable for x in (p * 0 if p.grad is None else p.grad).flatten().tolist()]


def weights(model: nn.Module) -> list[float]:
    """The trainable parameters, flat."""
    return [x for p in model.parameters() if p.requires_grad for x in p.detach().flatten().tolist()]


def sample_gradients(
    model: nn.Module, loss: Callable[..., Tensor], data: tuple[Tensor, ...], size: int = 1
) -> list[Gradient]:
    count = len(data[0]) // size
    return [flat_gradient(model, loss, tuple(t[i * size : (i + 1) * size] for t in data)) for i in range(count)]


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def variance(values: Sequence[float]) -> float:
    centre = mean(values)
    return math.fsum((v - centre) ** 2 for v in values) / (len(values) - 1)


def columns(gradients: list[Gradient]) -> list[list[float]]:
    return [list(c) for c in zip(*gradients, strict=True)]


def gsnr(gradients: list[Gradient], corrected: bool) -> list[float]:
    n = len(gradients)
    ratios = [mean(c) ** 2 / variance(c) if any(c) else None for c in columns(gradients)]
    scale, less = ((n - 3) / (n - 1), 1 / n) if corrected else (1.0, 0.0)
    return [0.0 if r is None else scale * r - less for r in ratios]


def osgr_parts(gradients: list[Gradient], p: Sequence[float], n: float) -> tuple[float, float]:
    """Numerator and denominator: the average over pairs of different samples, and that plus noise / n."""
    pairs = permutations(gradients, 2)
    signal = mean([math.fsum(q * x * y for q, x, y in zip(p, *pair, strict=True)) for pair in pairs])
    noise = math.fsum(q * variance(c) for q, c in zip(p, columns(gradients), strict=True))
    return signal, signal + noise / n


def osgr_weights(gradients: list[Gradient], p: Sequence[float], n: float) -> list[float]:
    count = len(gradients)
    entries = zip(p, columns(gradients), strict=True)
    parts = [q * (mean(c) ** 2 - variance(c) / count + variance(c) / n) for q, c in entries]
    total = math.fsum(parts)
    return [x / total for x in parts]


def jackknife_pairs(gradients: list[Gradient], p: Sequence[float], n: float) -> list[tuple[float, float]]:
    """Pseudo-values of numerator and denominator, each sample truly left out once."""
    count = len(gradients)
    whole = osgr_parts(gradients, p, n)
    pairs = []
    for i in range(count):
        part = osgr_parts(gradients[:i] + gradients[i + 1 :], p, n)
        pairs.append(tuple(count * w - (count - 1) * o for w, o in zip(whole, part, strict=True)))
    return pairs  # type: ignore[return-value]


def fieller(pairs: Sequence[tuple[float, float]], t: float) -> tuple[float, float, float]:
    """Ratio and limits: the two roots of (a - R b)^2 = t^2 Var[mean(a_k - R b_k)], by bisection."""
    count = len(pairs)

    def excess(ratio: float) -> float:
        left = [a - ratio * b for a, b in pairs]
        return mean(left) ** 2 - t * t * variance(left) / count

    value = mean([a for a, _ in pairs]) / mean([b for _, b in pairs])
    limits = []
    for sign in (-1.0, 1.0):
        step = 1e-3
        while excess(value + sign * step) < 0:
            step *= 2
            if step > 1e12:
                return value, -math.inf, math.inf
        near, far = 0.0, step
        for _ in range(200):
            middle = (near + far) / 2
            near, far = (middle, far) if excess(value + sign * middle) < 0 else (near, middle)
        limits.append(value + sign * near)
    return value, limits[0], limits[1]


def step_on_copy(
    model: nn.Module,
    make: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
    state: dict,
    loss: Callable[..., Tensor],
    batch: tuple[Tensor, ...],
    other: tuple[Tensor, ...],
) -> tuple[float, float, float, float]:
    """Loss decrease on D' and D, and their linear parts, after one step of a fresh optimizer with a given
    state.
    """
    model = copy.deepcopy(model).eval()
    optimizer = make(list(model.parameters()))
    optimizer.load_state_dict(copy.deepcopy(state))
    g_d, g_other = flat_gradient(model, loss, batch), flat_gradient(model, loss, other)
    with torch.no_grad():
        start_d, start_other = loss(model, *batch).item(), loss(model, *other).item()
    before = weights(model)
    optimizer.zero_grad()
    loss(model, *batch).backward()
    optimizer.step()
    with torch.no_grad():
        end_d, end_other = loss(model, *batch).item(), loss(model, *other).item()
    moved = [a - b for a, b in zip(weights(model), before, strict=True)]
    linear_other = -math.fsum(d * g for d, g in zip(moved, g_other, strict=True))
    linear_d = -math.fsum(d * g for d, g in zip(moved, g_d, strict=True))
    return start_other - end_other, start_d - end_d, linear_other, linear_d
