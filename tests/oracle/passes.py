"""Slow twins of SAM, GAM, FAD and SAGM: plain Python floats in flat lists, formulas and gradients written out.

The loss is a sum over samples of a small network without hidden layers, so its gradient can be written down:
L(w) = sum_k softplus(-y_k u_k) + sum_j sin(w_j)^2 / 10 + w_j^4 / 40 with u_k = tanh(x_k . w). All weights of
all tensors are one list here; the norms are over that list.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from . import baselines

Point = list[float]
Slope = Callable[[Point], Point]


def loss(w: Sequence[float], inputs: Sequence[Sequence[float]], signs: Sequence[float]) -> float:
    products = [sum(a * b for a, b in zip(x, w, strict=True)) for x in inputs]
    data = sum(math.log1p(math.exp(-y * math.tanh(u))) for u, y in zip(products, signs, strict=True))
    return data + sum(math.sin(a) ** 2 / 10 + a**4 / 40 for a in w)


def slope(w: Sequence[float], inputs: Sequence[Sequence[float]], signs: Sequence[float]) -> Point:
    g = [2 * math.sin(a) * math.cos(a) / 10 + 4 * a**3 / 40 for a in w]
    for x, y in zip(inputs, signs, strict=True):
        u = math.tanh(sum(a * b for a, b in zip(x, w, strict=True)))
        by = -y / (1 + math.exp(y * u)) * (1 - u * u)
        for j in range(len(g)):
            g[j] += by * x[j]
    return g


def norm(v: Sequence[float]) -> float:
    return math.sqrt(math.fsum(a * a for a in v))


def away(w: Point, radius: float, v: Point) -> Point:
    """The point w + radius v / |v|; w where v is zero."""
    length = norm(v)
    return list(w) if length == 0 else [a + radius * b / length for a, b in zip(w, v, strict=True)]


def sam(w: Point, at: Slope, rho: float, adaptive: bool) -> Point:
    g = at(w)
    if not adaptive:
        return at(away(w, rho, g))
    length = norm([abs(a) * b for a, b in zip(w, g, strict=True)])
    return at([a + rho * a * a * b / length for a, b in zip(w, g, strict=True)])


def gam(w: Point, at: Slope, r: float, r_prime: float, b0: float, b1: float, gamma: float) -> Point:
    n = range(len(w))
    g0 = at(w)
    g1 = at(away(w, r_prime, g0))
    h = [g1[j] - g0[j] for j in n]
    w2 = away(w, r, h)
    g2 = at(w2)
    g3 = at(away(w2, r_prime, g2))
    a = [b1 * g1[j] + (1 - b1) * g3[j] for j in n]
    c = [g0[j] + abs(1 - b0) * g2[j] for j in n]
    unit = [a[j] / norm(a) for j in n]
    along = math.fsum(c[j] * unit[j] for j in n)
    across = [c[j] - along * unit[j] for j in n]
    return [a[j] - gamma * across[j] for j in n]


def fad(w: Point, at: Slope, rho: float, alpha: float, beta: float) -> Point:
    n = range(len(w))
    g0 = at(w)
    g1 = at(away(w, rho, g0))
    h0 = [g1[j] - g0[j] for j in n]
    w2 = away(w, rho, h0)
    g2 = at(w2)
    g3 = at(away(w2, rho, g2))
    h1 = [g3[j] - g2[j] for j in n]
    return [g0[j] + beta * (alpha * h0[j] + (1 - alpha) * h1[j]) for j in n]


def sagm(w: Point, at: Slope, rho: float, alpha: float) -> Point:
    g = at(w)
    length = norm(g)
    there = at([a + rho * b / length - alpha * b for a, b in zip(w, g, strict=True)])
    return [(a + b) / 2 for a, b in zip(g, there, strict=True)]


class Base:
    """A twin of `baselines` that steps from any point along any direction."""

    def __init__(self, twin: baselines.Twin) -> None:
        self.twin = twin

    def step(self, w: Point, g: Point) -> Point:
        self.twin.theta = list(w)
        self.twin.step(g)
        return self.twin.theta
