r"""The GENIE update as pure functions of tensors: moments, direction, noise, mask, apply.

One step of one parameter tensor is three stages, because :math:`\kappa` needs the whole tensor:

1. `advance` moves the two moments. Where it may (``split``), it also moves every *calm* entry;
2. `gate_sums` gives the two sums whose ratio is :math:`\kappa`;
3. `finish` moves the entries that are left: the *live* ones, or all of them.

An entry is calm when :math:`s^2 \le 0.1`: then :math:`1/s^2 \ge 10`, :math:`a = \tanh(10)` is exactly 1
in float32 and the noise :math:`(1-a)\kappa\xi` is exactly 0. For ordinary networks that is nearly every
entry, so most steps end with stage 1 and never draw a normal number. Calmness is decided twice, in
`advance` and in `finish`, by the same arithmetic on the same stored float32 moments; other dtypes and
devices, where two kernels may round differently, are never split.

Every function works on any shape; the callers in `_loop`, `_foreach` and `_fused` choose the shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from genie_dg import _moments, _random
from genie_dg._moments import (
    FLOOR,
    Averaging,
    Scalar,
    advance_moments,
    raw_variance,
    safe_square,
    trust,
    variance,
)

CALM = 0.1
"""Entries with a variance at or below this get no noise in float32."""


@dataclass(frozen=True)
class Rule:
    """Which parts of the update are switched on: everything that changes the code of a step."""

    formulation: str
    precondition: bool
    noise: bool
    mask: bool
    maximize: bool
    l2: bool
    shrink: bool

    @property
    def needs_kappa(self) -> bool:
        return self.noise and self.formulation == "released"


class Scalars(NamedTuple):
    """The numbers of one step; Python floats, or zero-dimensional tensors."""

    average: Averaging
    size: Scalar  # lr, times 1 / (1 - p) in the released form
    shrink: Scalar  # 1 - lr * weight_decay when the decay is decoupled
    l2: Scalar  # weight_decay when it is coupled
    noise_std: Scalar

    def flat(self) -> list[Scalar]:
        return [*self.average, self.size, self.shrink, self.l2, self.noise_std]

    @staticmethod
    def from_flat(values: tuple[Tensor, ...] | list[Scalar]) -> Scalars:
        return Scalars(Averaging(*values[:5]), *values[5:])


class Draw(NamedTuple):
    """The random numbers of a tensor: one word for each element, made when it is asked for."""

    rows: Tensor  # row words
    lanes: Tensor  # lane words
    threshold: _random.Word

    def word(self) -> Tensor:
        return _random.element_words(self.rows, self.lanes)


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """float64 stays; everything narrower is computed in float32 and stored in its own dtype."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def advance(
    rule: Rule, p: Tensor, g: Tensor, m: Tensor, v: Tensor, s: Scalars, draw: Draw, split: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The new moments; with ``split`` also the new calm entries of p and the number of live ones.

    With ``split`` an overflow of v is left to `finish`: such an entry is never calm.

    Returns (p, m, v, live), in the dtypes of the arguments; ``live`` counts along the last dimension.
    """
    wide = compute_dtype(p.dtype)
    g = g.to(wide)
    if rule.maximize:
        g = -g
    if rule.l2:
        g = g + p.to(wide) * s.l2
    new_m, new_v = advance_moments(g, m.to(wide), v.to(wide), s.average)
    if not split:
        new_v = new_v.clamp(max=torch.finfo(v.dtype).max)
        return p, new_m.to(m.dtype), new_v.to(v.dtype), torch.ones((), device=p.device)
    direction, calm = _calm_direction(rule, new_m, new_v, s)
    still = p * s.shrink if rule.shrink else p
    stepped = still - direction * s.size
    if rule.mask:
        stepped = torch.where(_random.drop_mask(draw.word(), draw.threshold), still, stepped)
    return torch.where(calm, stepped, p), new_m, new_v, torch.where(calm, 0.0, 1.0).sum(-1)


def _calm_direction(rule: Rule, m: Tensor, v: Tensor, s: Scalars) -> tuple[Tensor, Tensor]:
    """The update direction where the gate is exactly 1, and where that is. NaN and overflow are not calm."""
    average = s.average
    if rule.formulation == "released":
        mean = m * average.inverse_correction
        raw = raw_variance(v, mean, average)
        calm = raw.abs() <= CALM
        if not rule.precondition:
            return mean, calm
        return mean * trust(mean * mean, torch.threshold(raw, 0.0, FLOOR), average.rho), calm
    square = m * m
    calm = (v - square).abs() <= CALM
    direction = m * average.inverse_correction
    if rule.precondition:
        direction = direction * (square / v.clamp(min=FLOOR))
    return direction, calm


class Direction(NamedTuple):
    """The parts of one step, entry by entry, for any finite moments."""

    mean: Tensor  # bias-corrected momentum
    s2: Tensor  # variance of the gradient
    gate: Tensor  # a
    trust: Tensor  # q
    step: Tensor  # the direction without noise


def direction(rule: Rule, m: Tensor, v: Tensor, s: Scalars) -> Direction:
    """Gate, trust and direction of every entry, safe against overflow.

    ``m * 0`` makes everything NaN where m is not finite, and changes nothing elsewhere.
    """
    wide = compute_dtype(m.dtype)
    m, v = m.to(wide), v.to(wide)
    average = s.average
    largest = torch.finfo(wide).max
    mean = (m * average.inverse_correction).clamp(-largest, largest) + m * 0.0
    if rule.formulation == "released":
        s2 = variance(v, mean, average)
        gate = _moments.gate(s2)
        q = trust(safe_square(mean), s2, average.rho)
        return Direction(mean, s2, gate, q, mean * q * gate if rule.precondition else mean)
    square = safe_square(m)
    s2 = (v - square).clamp(min=FLOOR)
    gate = torch.tanh(1.0 / s2)
    q = square / v.clamp(min=FLOOR)
    return Direction(mean, s2, gate, q, mean * (q * gate) if rule.precondition else mean)


def gate_terms(rule: Rule, m: Tensor, v: Tensor, s: Scalars) -> tuple[Tensor, Tensor]:
    """The terms a |mean| q and a, entry by entry; both 0 where the moments are not finite.

    The first is held so low that 2^40 of them can be added.
    """
    d = direction(rule, m, v, s)
    top, bottom = d.gate * d.mean.abs() * d.trust, d.gate + d.mean * 0.0
    top = top.clamp(max=torch.finfo(top.dtype).max / 2**40)
    return torch.nan_to_num(top, 0.0, 0.0, 0.0), torch.nan_to_num(bottom, 0.0, 0.0, 0.0)


def gate_sums(rule: Rule, m: Tensor, v: Tensor, s: Scalars) -> Tensor:
    """The numerator and the denominator of kappa, as a tensor of two."""
    top, bottom = gate_terms(rule, m, v, s)
    return torch.stack((top.sum(), bottom.sum()))


def kappa_of(sums: Tensor) -> Tensor:
    """Kappa = sum(a |mean| q) / sum(a) for sums ``[..., 2]``; 0 when no entry has a gate."""
    top, bottom = sums.unbind(-1)
    return torch.where(bottom > 0, top / torch.where(bottom > 0, bottom, 1.0), 0.0)


def finish(
    rule: Rule, p: Tensor, m: Tensor, v: Tensor, s: Scalars, kappa: Scalar, draw: Draw, split: bool
) -> tuple[Tensor, Tensor]:
    """The new p, and v with a lid. With ``split`` the calm entries, which `advance` has moved, stay."""
    wide = compute_dtype(p.dtype)
    d = direction(rule, m, v, s)
    step = d.step
    word = draw.word() if rule.noise or rule.mask else None
    if rule.noise and word is not None:
        scale = s.noise_std if rule.formulation == "algorithm1" else kappa
        step = step + (1.0 - d.gate) * scale * _random.normal(word).to(wide)
    if rule.mask and word is not None:
        largest = torch.finfo(wide).max
        step = step.clamp(-largest, largest) * ~_random.drop_mask(word, draw.threshold)
    old = p.to(wide)
    new = (old * s.shrink if rule.shrink else old) - step * s.size
    new = new.clamp(-torch.finfo(p.dtype).max, torch.finfo(p.dtype).max)
    if split:
        _, calm = _calm_direction(rule, m, v, s)
        new = torch.where(calm, old, new)
    return new.to(p.dtype), v.clamp(max=torch.finfo(v.dtype).max)
