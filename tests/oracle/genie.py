"""GENIE in plain Python floats, entry by entry, and its random numbers in plain Python integers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

M32 = 0xFFFFFFFF


@dataclass
class Twin:
    """One tensor of n entries. ``step`` takes the gradient, the normal numbers and the mask as lists."""

    theta: list[float]
    lr: float = 0.015
    beta: float = 0.95
    p: float = 0.4
    sigma: float = 0.1
    formulation: str = "released"
    precondition: bool = True
    noise: bool = True
    mask: bool = True
    l2: float = 0.0
    shrink: float = 0.0
    eps: float = 2.0**-52  # of the arithmetic that the twin stands for
    t: int = 0
    m: list[float] = field(default_factory=list)
    v: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.theta = list(self.theta)
        self.m, self.v = [0.0] * len(self.theta), [0.0] * len(self.theta)

    def step(self, g: list[float], xi: list[float], keep: list[float]) -> None:
        self.t += 1
        parts = [self._parts(j, g[j]) for j in range(len(g))]
        top = sum(a * abs(mean) * q for mean, a, q, _ in parts)
        bottom = sum(a for _, a, _, _ in parts)
        kappa = top / bottom if bottom else 0.0
        if self.formulation == "algorithm1":
            kappa = self.sigma
        for j, (_, a, _, direction) in enumerate(parts):
            move = direction
            if self.noise:
                move += (1 - a) * kappa * xi[j]
            if self.mask:
                move *= keep[j]
                if self.formulation == "released":
                    move /= 1 - self.p
            self.theta[j] = self.theta[j] * (1 - self.lr * self.shrink) - self.lr * move

    def _parts(self, j: int, g: float) -> tuple[float, float, float, float]:
        """(mean, gate, trust, direction) of entry j after its moments have moved."""
        b, t = self.beta, self.t
        g = g + self.l2 * self.theta[j]
        self.m[j] = b * self.m[j] + (1 - b) * g
        self.v[j] = b * self.v[j] + (1 - b) * g * g
        m, v = self.m[j], self.v[j]
        c = 1 - b**t
        mean = m / c
        if self.formulation == "algorithm1":
            s2 = max(self._resolved(v, m * m), 1e-8)
            a = math.tanh(1 / s2)
            q = m * m / max(v, 1e-8)
            return mean, a, q, mean * a * q if self.precondition else mean
        rho = (1 - b) * (1 + b**t) / ((1 + b) * (1 - b**t))
        s2 = 1e-8 if t == 1 or b == 0 else self._resolved(v / c, mean * mean) / (1 - rho)
        a = math.tanh(1 / max(s2, 0.1))
        q = 1 / (1 + rho * s2 / (mean * mean + 1e-8))
        return mean, a, q, mean * q * a if self.precondition else mean

    def _resolved(self, second: float, square: float) -> float:
        """What is left of a mean square without the squared mean: nothing if that may be rounding."""
        b, t = self.beta, self.t
        samples = (1 + b) * (1 - b**t) / ((1 - b) * (1 + b**t))
        d, doubt = second - square, 4 * self.eps * samples * second
        if d <= doubt:
            return 0.0
        return d if d >= 2 * doubt else 2 * (d - doubt)


def mix(x: int) -> int:
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & M32
    x = ((x ^ (x >> 15)) * 0x846CA68B) & M32
    return x ^ (x >> 16)


def key(seed: int, step: int, index: int, high: int = 0) -> tuple[int, int]:
    words = []
    for salt in (0x243F6A88, 0x85A308D3):
        word = salt
        for part in (seed & M32, (seed >> 32) & M32, index, high):
            word = mix(((word + 0x9E3779B9) & M32) ^ part)
        words.append(mix((word + step * 0x9E3779B9) & M32))
    return words[0], words[1]


def bits(i: int, k0: int, k1: int) -> int:
    """The unsigned 32-bit word of element i: long hash of the row, short hash of the lane."""
    row, lane = divmod(i, 256)
    x = row ^ k0
    x = (((x ^ (x >> 16)) * 0x7FEB352D) + k1) & M32
    x = ((x ^ (x >> 15)) * 0x846CA68B) & M32
    x = x ^ (x >> 16)
    x = ((x ^ mix((lane + 1) * 0x9E3779B9 & M32)) * 0x7FEB352D) & M32
    return ((x ^ (x >> 15)) * 0x846CA68B) & M32


def signed(x: int) -> int:
    return x - (1 << 32) if x >> 31 else x


def keep(i: int, k: tuple[int, int], p: float) -> bool:
    return signed(bits(i, *k)) >= round(p * 2**32) - 2**31


def uniform(i: int, k: tuple[int, int]) -> float:
    """In (-1, 1); the normal number is sqrt(2) erfinv of it."""
    x = (bits(i, *k) + 0x9E3779B9) & M32
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & M32
    x = ((x ^ (x >> 15)) * 0x846CA68B) & M32
    return ((signed(x) >> 8) + 0.5) * 2.0**-23
