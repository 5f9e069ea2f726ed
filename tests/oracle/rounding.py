"""How far correct GENIE steps in floating point may be apart: a bound for every entry, from step to step.

Two paths add and multiply in another order, so their moments differ by a few units of rounding. What that makes
of a weight depends on the entry. Mostly it is the same few units. But the variance is a difference of two
squares: of gradients near 1000 that hardly change only rounding is left of it, of the size of 1, and the gate
answers to that. So a single tolerance is either too narrow there or too wide everywhere else. `Doubt` follows
the rule with intervals in float64: each quantity has a least and a largest value that a correct path can find.
Where the gradient is constant both are the same: its variance is 0 in every path.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

NORMAL = 2e-6
"""Relative error of a normal number, which is a polynomial in float32 for every dtype."""

LARGEST_NORMAL = 5.5
"""No normal number of 24 bits is larger."""

TANH = 8
"""Relative error of the gate in units of rounding: a polynomial in one path."""

Interval = tuple[Tensor, Tensor]


def rounded(x: float, dtype: torch.dtype) -> float:
    """A number of a step as the paths take it."""
    return float(torch.tensor(x, dtype=torch.float64).to(dtype))


def rounding(dtype: torch.dtype) -> float:
    """The largest relative error of one operation, and in float64 of the same operation here."""
    return torch.finfo(dtype).eps * (1.0 if dtype == torch.float64 else 0.501)


def around(x: Tensor, doubt: Tensor) -> Interval:
    return (x - doubt).clamp(min=0), x + doubt


@dataclass
class Doubt:
    """The moments of one tensor in float64, how far those of a path may be from them, and how far two p's."""

    m: Tensor
    v: Tensor
    of_m: Tensor
    of_v: Tensor
    of_p: Tensor

    @staticmethod
    def none(like: Tensor) -> Doubt:
        return Doubt(*(torch.zeros(like.shape, dtype=torch.float64) for _ in range(5)))

    def see(self, loop: list[Tensor], others: list[list[Tensor]], exactly: bool) -> None:
        """Go on from how far p, m and v of the paths are apart; exactly if m and v too, else p alone.

        A moment that became infinite when a saved state was cast to float16 is the largest number in a step.
        """
        most = torch.finfo(loop[0].dtype).max
        loop, *others = (
            [x[0].double(), *(y.double().clamp(-most, most) for y in x[1:])] for x in (loop, *others)
        )
        apart = [torch.zeros_like(x) for x in loop]
        for other in others:
            apart = [torch.maximum(d, (x - y).abs()) for d, x, y in zip(apart, other, loop, strict=True)]
        self.of_p = apart[0]
        if exactly:
            (_, self.m, self.v), (_, self.of_m, self.of_v) = loop, apart

    def step(self, group: dict[str, Any], t: int, p: Tensor, g: Tensor) -> None:
        """Step t of a path from p with gradient g."""
        wide = torch.float64 if p.dtype == torch.float64 else torch.float32
        unit = rounding(wide)
        beta, weight = rounded(group["beta"], wide), rounded(1 - group["beta"], wide)
        l2 = 0.0 if group["decoupled_weight_decay"] else group["weight_decay"]
        g = g.double() * (-1 if group["maximize"] else 1) + l2 * p.double()
        of_g = l2 * self.of_p + (2 * unit * (g.abs() + 2 * l2 * p.double().abs()) if l2 else 0.0)
        m, v = beta * self.m, beta * self.v
        self.of_m = beta * self.of_m + weight * of_g + unit * (m.abs() + weight * g.abs())
        self.of_v = beta * self.of_v + weight * (2 * g.abs() + of_g) * of_g + unit * (v + 2 * weight * g * g)
        self.m, self.v = m + weight * g, v + weight * g * g
        tiny = 2 * torch.finfo(wide).smallest_normal * torch.finfo(wide).eps
        self.of_m, self.of_v = (  # the rounding of a sum, unless it starts at 0
            doubt + torch.where(before == 0, 0.0, unit * after.abs()) + tiny
            for doubt, before, after in ((self.of_m, m, self.m), (self.of_v, v, self.v))
        )
        if wide != p.dtype:
            self.v = self.v.clamp(max=torch.finfo(p.dtype).max)
            self.of_m, self.of_v = self.of_m + stored(self.m, p.dtype), self.of_v + stored(self.v, p.dtype)
        size, doubt = self._direction(group, t, wide)
        rescale = 1 - group["dropout"] if group["formulation"] == "released" else 1.0
        lr = float(group["lr"]) / rescale
        largest = p.double().abs() + lr * size
        self.of_p = self.of_p + lr * (doubt + 4 * unit * size) + 4 * unit * largest + stored(largest, p.dtype)

    def _direction(self, group: dict[str, Any], t: int, wide: torch.dtype) -> tuple[Tensor, Tensor]:
        """Size and doubt of what is subtracted, without step size and mask."""
        unit, released = rounding(wide), group["formulation"] == "released"
        correction = rounded(1 / (1 - group["beta"] ** t), wide)
        mean, of_mean = self.m.abs() * correction, (self.of_m + unit * self.m.abs()) * correction
        gate, q = self._gate_and_trust(group, t, wide, mean, of_mean)
        low, high = around(mean, of_mean)
        part = low * q[0] * gate[0], high * q[1] * gate[1]
        size, doubt = part[1], part[1] - part[0] + torch.where(mean < of_mean, part[1], 0.0)
        if not group["precondition"]:
            size, doubt = high, 2 * of_mean
        if group["noise"] and mean.numel():
            scale = (group["noise_std"], group["noise_std"])
            if released:
                least, largest = (float(part[k].sum() / gate[1 - k].sum()) for k in (0, 1))
                scale = least * (1 - 16 * unit), largest * (1 + 16 * unit)  # the sums are rounded, too
            rest = (1 - gate[1] - unit).clamp(min=0), 1 - gate[0]
            noise = rest[0] * scale[0] * (1 - NORMAL), rest[1] * scale[1] * (1 + NORMAL)
            size = size + noise[1] * LARGEST_NORMAL
            doubt = doubt + (noise[1] - noise[0]) * LARGEST_NORMAL
        return size, doubt

    def _gate_and_trust(
        self, group: dict[str, Any], t: int, wide: torch.dtype, mean: Tensor, of_mean: Tensor
    ) -> tuple[Interval, Interval]:
        unit, beta = rounding(wide), group["beta"]
        rho = (1 - beta) * (1 + beta**t) / ((1 + beta) * (1 - beta**t))
        single = t == 1 or beta == 0
        if group["formulation"] == "released":
            correction = rounded(1 / (1 - beta**t), wide)
            second, of_second = self.v * correction, (self.of_v + unit * self.v) * correction
            freedom, least, cap = (0.0, 1e-8, 0.1) if single else (1 / (1 - rho), 0.0, 0.1)
        else:
            mean, of_mean, second, of_second = self.m.abs(), self.of_m, self.v, self.of_v
            freedom, least, cap = 1.0, 1e-8, 1e-8
        square = around(mean * mean, (2 * mean + of_mean) * of_mean + unit * mean * mean)
        d = second - mean * mean
        of_d = of_second + (square[1] - mean * mean) + unit * d.abs()
        noise = 8 * torch.finfo(wide).eps / rho * second  # what counts as rounding: see `genie_dg._moments`
        s2 = tuple(
            (torch.minimum(x, 2 * x - noise).clamp(min=0) * freedom * (1 + e)).clamp(min=least)
            for x, e in ((d - of_d, -4 * unit), (d + of_d, 4 * unit))
        )
        gate_low, gate_high = (torch.tanh(1 / x.clamp(min=cap)) for x in reversed(s2))
        error = torch.where(gate_low < 1 - 1e-8, TANH * unit, 0.0 if wide == torch.float32 else 2 * unit)
        gate = gate_low * (1 - error), (gate_high * (1 + error)).clamp(max=1.0)
        if group["formulation"] == "released":
            signals = square[0] + 1e-8, square[1] + 1e-8
            q = signals[0] / (signals[0] + rho * s2[1]), signals[1] / (signals[1] + rho * s2[0])
        else:
            seconds = around(second, of_second)
            q = square[0] / seconds[1].clamp(min=1e-8), square[1] / seconds[0].clamp(min=1e-8)
        return gate, (q[0] * (1 - 4 * unit), q[1] * (1 + 4 * unit))


def stored(x: Tensor, dtype: torch.dtype) -> Tensor:
    """One unit of rounding of x in a dtype."""
    kind = torch.finfo(dtype)
    return x.abs() * kind.eps + kind.smallest_normal * kind.eps
