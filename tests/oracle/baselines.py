"""Slow twins of the baseline optimizers: plain Python floats, entry by entry, each from its paper's formulas.

A twin holds a flat list of weights. ``step`` takes the gradient of the loss alone (weight decay is the twin's
own business); AdaHessian's ``second`` also takes the dense Hessian and the signs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from . import genie

Numbers = list[float]


@dataclass
class Twin:
    """Weights, and as many zeros for each average."""

    theta: Numbers
    lr: float
    decay: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    t: int = 0
    m: Numbers = field(default_factory=list)
    v: Numbers = field(default_factory=list)

    def __post_init__(self) -> None:
        self.theta = list(self.theta)
        self.m, self.v = [0.0] * len(self.theta), [0.0] * len(self.theta)

    def step(self, gradient: Sequence[float]) -> None:
        self.t += 1
        for j, g in enumerate(gradient):
            self.entry(j, g)

    def entry(self, j: int, g: float) -> None:
        raise NotImplementedError

    def averages(self, j: int, first: float, second: float) -> tuple[float, float]:
        """Both averages after these values have gone in, without their bias."""
        self.m[j] = self.beta1 * self.m[j] + (1 - self.beta1) * first
        self.v[j] = self.beta2 * self.v[j] + (1 - self.beta2) * second
        return self.m[j] / (1 - self.beta1**self.t), self.v[j] / (1 - self.beta2**self.t)

    def coupled(self, j: int, g: float) -> float:
        """The gradient of the loss plus decay / 2 times the squared weight."""
        return g + self.decay * self.theta[j]

    def shrink(self, j: int) -> None:
        """Decoupled decay, of the weight before the step."""
        self.theta[j] -= self.lr * self.decay * self.theta[j]


@dataclass
class SGD(Twin):
    """b <- mu b + g, theta <- theta - lr b; with Nesterov theta <- theta - lr (g + mu b)."""

    momentum: float = 0.0
    nesterov: bool = False

    def entry(self, j: int, g: float) -> None:
        g = self.coupled(j, g)
        self.m[j] = self.momentum * self.m[j] + g
        self.theta[j] -= self.lr * (g + self.momentum * self.m[j] if self.nesterov else self.m[j])


@dataclass
class Adam(Twin):
    """Kingma and Ba, Algorithm 1, on the regularised gradient."""

    def entry(self, j: int, g: float) -> None:
        self.adam(j, self.coupled(j, g))

    def adam(self, j: int, g: float) -> None:
        m_hat, v_hat = self.averages(j, g, g * g)
        self.theta[j] -= self.lr * m_hat / (math.sqrt(v_hat) + self.eps)


@dataclass
class AdamW(Adam):
    """Loshchilov and Hutter, Algorithm 2, with the decay times lr."""

    def entry(self, j: int, g: float) -> None:
        self.shrink(j)
        self.adam(j, g)


@dataclass
class RMSprop(Twin):
    """v <- alpha v + (1 - alpha) g^2, theta <- theta - lr g / (sqrt(v) + eps)."""

    alpha: float = 0.99

    def entry(self, j: int, g: float) -> None:
        g = self.coupled(j, g)
        self.v[j] = self.alpha * self.v[j] + (1 - self.alpha) * g * g
        self.theta[j] -= self.lr * g / (math.sqrt(self.v[j]) + self.eps)


@dataclass
class AdaBelief(Twin):
    """Zhuang et al., Algorithm 2: eps is added to s in each step and again under the fraction.

    With ``rectify`` the factor of RAdam (Liu et al., 2020), and momentum alone while its length is below 5.
    """

    rectify: bool = False

    def entry(self, j: int, g: float) -> None:
        self.shrink(j)
        self.m[j] = self.beta1 * self.m[j] + (1 - self.beta1) * g
        self.v[j] = self.beta2 * self.v[j] + (1 - self.beta2) * (g - self.m[j]) ** 2 + self.eps
        m_hat = self.m[j] / (1 - self.beta1**self.t)
        s_hat = self.v[j] / (1 - self.beta2**self.t)
        if not self.rectify:
            self.theta[j] -= self.lr * m_hat / (math.sqrt(s_hat) + self.eps)
            return
        power, longest = self.beta2**self.t, 2 / (1 - self.beta2) - 1
        length = longest - 2 * self.t * power / (1 - power)
        if length < 5:
            self.theta[j] -= self.lr * m_hat
        else:
            r = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
            root = math.sqrt(self.v[j]) + self.eps
            self.theta[j] -= self.lr * math.sqrt(r * (1 - power)) * m_hat / root


@dataclass
class Yogi(Twin):
    """Zaheer et al., Algorithm 2, with two conventions of the row: Adam's bias corrections, and both averages
    start at ``initial``.
    """

    initial: float = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        self.m, self.v = [self.initial] * len(self.theta), [self.initial] * len(self.theta)

    def entry(self, j: int, g: float) -> None:
        self.shrink(j)
        self.m[j] = self.beta1 * self.m[j] + (1 - self.beta1) * g
        difference = self.v[j] - g * g
        sign = (difference > 0) - (difference < 0)
        self.v[j] -= (1 - self.beta2) * sign * g * g
        m_hat = self.m[j] / (1 - self.beta1**self.t)
        v_hat = self.v[j] / (1 - self.beta2**self.t)
        self.theta[j] -= self.lr * m_hat / (math.sqrt(v_hat) + self.eps)


@dataclass
class MSVAG(Twin):
    """Balles and Hennig, Algorithm 2; one gradient has no variance."""

    beta: float = 0.9

    def entry(self, j: int, g: float) -> None:
        b, t = self.beta, self.t
        g = self.coupled(j, g)
        self.m[j] = b * self.m[j] + (1 - b) * g
        self.v[j] = b * self.v[j] + (1 - b) * g * g
        m, v = self.m[j] / (1 - b**t), self.v[j] / (1 - b**t)
        # the sum of the squared weights of the normalised moving average, one by one
        rho = sum(((1 - b) * b**k / (1 - b**t)) ** 2 for k in range(t))
        s = 0.0 if t == 1 else max(v - m * m, 0.0) / (1 - rho)
        gamma = m * m / (m * m + rho * s) if m else 0.0
        self.theta[j] -= self.lr * gamma * m


@dataclass
class AdaHessian(Twin):
    """Yao et al., Algorithm 1. ``kernels`` are lists of entries whose estimates are replaced by their mean."""

    power: float = 1.0
    kernels: list[list[int]] = field(default_factory=list)

    def second(self, gradient: Sequence[float], hessian: Sequence[Sequence[float]], z: Sequence[float]) -> None:
        self.t += 1
        products = [math.fsum(h * x for h, x in zip(row, z, strict=True)) for row in hessian]
        estimate = [x * product for x, product in zip(z, products, strict=True)]
        for kernel in self.kernels:
            mean = math.fsum(estimate[j] for j in kernel) / len(kernel)
            for j in kernel:
                estimate[j] = mean
        for j, (g, d) in enumerate(zip(gradient, estimate, strict=True)):
            self.shrink(j)
            m_hat, d_hat = self.averages(j, g, d * d)
            self.theta[j] -= self.lr * m_hat / (math.sqrt(d_hat) ** self.power + self.eps)


def signs(seed: int, step: int, sizes: Sequence[int]) -> Numbers:
    """AdaHessian's signs for parameters of these sizes: minus where the word of the element is negative."""
    drawn = []
    for index, size in enumerate(sizes):
        key = genie.key(seed, step, index)
        drawn += [-1.0 if genie.signed(genie.bits(i, *key)) < 0 else 1.0 for i in range(size)]
    return drawn
