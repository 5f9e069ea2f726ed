r"""The GENIE update as pure functions of tensors, and the loop that applies it to one parameter after another.

One step of one parameter tensor is three stages, because :math:`\kappa` needs the whole tensor: `advance` moves
the two moments, `gate_sums` gives the two sums whose ratio is :math:`\kappa`, and `stepped` moves the parameter
along its `direction`. Every function works on any shape.

The device path (`_device`) spares most of that. An entry is *calm* when :math:`s^2 \le 0.1`: then
:math:`1/s^2 \ge 10`, :math:`a = \tanh(10)` is exactly 1 in float32 and the noise :math:`(1-a)\kappa\xi` is
exactly 0; the other entries are *live*. For ordinary networks nearly every entry is calm, so most steps need
neither :math:`\kappa` nor a normal number. `calm_moments` and `calm_step` are what it uses for
calm entries, eager or compiled, equal to `direction` in every bit. They serve float32 on CPU alone: elsewhere
two kernels may round differently.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from genie_dg import _moments, _random
from genie_dg._constants import CALM as CALM
from genie_dg._moments import FLOOR, Averaging, Scalar, advance_moments, doubled
from genie_dg._options import UpdateRule

from ._local import LocalParameter, stream_keys, whole_words


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
        return Scalars(Averaging(*values[:6]), *values[6:])


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """float64 stays; everything narrower is computed in float32 and stored in its own dtype."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def wide_moments(
    rule: UpdateRule, p: Tensor, g: Tensor, m: Tensor, v: Tensor, s: Scalars
) -> tuple[Tensor, Tensor]:
    """The new moments in `compute_dtype`; v may overflow."""
    wide = compute_dtype(p.dtype)
    g = g.to(wide)
    if rule.maximize:
        g = -g
    if rule.l2:
        g = g + p.to(wide) * s.l2
    return advance_moments(g, m.to(wide), v.to(wide), s.average)


def advance(rule: UpdateRule, p: Tensor, g: Tensor, m: Tensor, v: Tensor, s: Scalars) -> tuple[Tensor, Tensor]:
    """The new moments, in the dtypes of the old ones."""
    new_m, new_v = wide_moments(rule, p, g, m, v, s)
    return new_m.to(m.dtype), new_v.clamp(max=torch.finfo(v.dtype).max).to(v.dtype)


class StepParts(NamedTuple):
    """The parts of one step, entry by entry, for any finite moments."""

    mean: Tensor  # bias-corrected momentum
    s2: Tensor  # variance of the gradient
    gate: Tensor  # a
    trust: Tensor  # q
    step: Tensor  # the direction without noise


def direction(rule: UpdateRule, m: Tensor, v: Tensor, s: Scalars, typical: Scalar = 0.0) -> StepParts:
    """Gate, trust and direction of every entry, safe against overflow.

    ``m * 0`` makes everything NaN where m is not finite, and changes nothing elsewhere. ``typical`` is the mean
    variance of the tensor, which ``"theorem"`` needs (see `kappa_of`).
    """
    wide = compute_dtype(m.dtype)
    m, v = m.to(wide), v.to(wide)
    average = s.average
    largest = torch.finfo(wide).max
    mean = (m * average.inverse_correction).clamp(-largest, largest) + m * 0.0
    if rule.formulation == "released":
        s2 = _moments.variance(v, mean, average)
        gate = _moments.gate(s2)
        q = _moments.trust(_moments.safe_square(mean), s2, average.rho)
        return StepParts(mean, s2, gate, q, mean * q * gate if rule.precondition else mean)
    if rule.formulation == "theorem":
        s2 = _moments.variance(v, mean, average)
        q = _moments.inverse_variance(s2, typical)
        return StepParts(mean, s2, torch.ones_like(s2), q, mean * q if rule.precondition else mean)
    s2, gate, q = _moments.printed(m, v, average)
    return StepParts(mean, s2, gate, q, mean * (q * gate) if rule.precondition else mean)


def gate_terms(rule: UpdateRule, m: Tensor, v: Tensor, s: Scalars) -> tuple[Tensor, Tensor]:
    """The terms a |mean| q and a, entry by entry; both 0 where the moments are not finite.

    The first is held so low that 2^40 of them can be added. For ``"theorem"`` they are the variance and 1.
    """
    d = direction(rule, m, v, s)
    size = d.s2 if rule.formulation == "theorem" else d.mean.abs() * d.trust
    top, bottom = d.gate * size + d.mean * 0.0, d.gate + d.mean * 0.0
    top = top.clamp(max=torch.finfo(top.dtype).max / 2**40)
    return torch.nan_to_num(top, 0.0, 0.0, 0.0), torch.nan_to_num(bottom, 0.0, 0.0, 0.0)


def gate_sums(rule: UpdateRule, m: Tensor, v: Tensor, s: Scalars) -> Tensor:
    """The numerator and the denominator of kappa, as a tensor of two."""
    top, bottom = gate_terms(rule, m, v, s)
    return torch.stack((top.sum(), bottom.sum()))


def kappa_of(sums: Tensor) -> Tensor:
    """Kappa = sum(a |mean| q) / sum(a) for sums ``[..., 2]``; 0 when no entry has a gate.

    For ``"theorem"`` the same quotient is the mean variance.
    """
    top, bottom = sums.unbind(-1)
    return torch.where(bottom > 0, top / torch.where(bottom > 0, bottom, 1.0), 0.0)


class Randomness(NamedTuple):
    """Names the random words of a parameter group: seed, and the int32 below which a word means "drop"."""

    seed: int
    threshold: int


class Perturbation(NamedTuple):
    """What a step takes besides the moments: kappa, and a random word for each entry where they are needed."""

    kappa: Scalar
    word: Tensor | None
    threshold: _random.Word


def stepped(rule: UpdateRule, p: Tensor, m: Tensor, v: Tensor, s: Scalars, by: Perturbation) -> Tensor:
    """The new p, for the new moments."""
    wide = compute_dtype(p.dtype)
    d = direction(rule, m, v, s, by.kappa)
    step = d.step
    if rule.noise and by.word is not None and rule.formulation != "theorem":
        scale = s.noise_std if rule.formulation == "algorithm1" else by.kappa
        step = step + (1.0 - d.gate) * scale * _random.normal(by.word).to(wide)
    if rule.mask and by.word is not None:
        largest = torch.finfo(wide).max
        step = step.clamp(-largest, largest) * ~_random.drop_mask(by.word, by.threshold)
    old = p.to(wide)
    new = (old * s.shrink if rule.shrink else old) - step * s.size
    return new.clamp(-torch.finfo(p.dtype).max, torch.finfo(p.dtype).max).to(p.dtype)


def step_loop(
    rule: UpdateRule,
    parameters: list[LocalParameter],
    grads: list[Tensor],
    scalars: list[Scalars],
    steps: list[int | Tensor],
    randomness: Randomness,
) -> None:
    """The readable path: update every parameter in place, whole tensors, one after the other."""
    for parameter, g, s, t in zip(parameters, grads, scalars, steps, strict=True):
        p, m, v = parameter[:3]
        reduce = parameter.reduce
        if p.numel() == 0:  # an empty tensor, perhaps the empty shard of one that is not
            if rule.needs_kappa and reduce is not None:
                reduce(torch.zeros(2, dtype=compute_dtype(p.dtype), device=p.device))
            continue
        new_m, new_v = advance(rule, p, g, m, v, s)
        m.copy_(new_m)
        v.copy_(new_v)
        kappa: float | Tensor = 0.0
        if rule.needs_kappa:
            sums = gate_sums(rule, m, v, s)
            kappa = kappa_of(sums if reduce is None else reduce(sums))
        word = None
        if rule.needs_words:
            keys = stream_keys(randomness.seed, [parameter.number], [t], p.device)
            word = whole_words(parameter, keys[:, 0])
        p.copy_(stepped(rule, p, m, v, s, Perturbation(kappa, word, randomness.threshold)))


class CalmMoments(NamedTuple):
    """What the step of a calm entry follows from."""

    mean: Tensor  # bias-corrected momentum
    square: Tensor  # of the mean, or in "algorithm1" of m
    s2: Tensor  # variance of the gradient, rounding below 0 included: calm where its absolute value is <= CALM


def calm_moments(
    rule: UpdateRule, m: Tensor, v: Tensor, s: Scalars, out: tuple[Tensor, Tensor, Tensor, Tensor] | None = None
) -> CalmMoments:
    """Mean, square and variance with no care for overflow: such an entry, and NaN, is not calm.

    ``out`` is three buffers for the result and one more, for eager code.
    """
    x, y, z, spare = (None, None, None, None) if out is None else out
    released, correction = rule.formulation == "released", s.average.inverse_correction
    mean = torch.mul(m, correction, out=x)
    square = torch.mul(mean, mean, out=y) if released else torch.mul(m, m, out=y)
    second = torch.mul(v, correction, out=z) if released else v
    twice = torch.mul(second, doubled(s.average, m.dtype), out=spare).sub_(square, alpha=2.0)
    s2 = torch.minimum(torch.sub(second, square, out=z), twice, out=z)
    return CalmMoments(mean, square, s2.mul_(s.average.inverse_freedom) if released else s2)


def calm_step(rule: UpdateRule, moments: CalmMoments, v: Tensor, s: Scalars) -> Tensor:
    """The `direction` of calm entries, without noise; writes over ``moments``."""
    mean, square, s2 = moments
    if not rule.precondition:
        return mean
    if rule.formulation == "released":
        signal = square.add_(FLOOR)
        return signal.div_(s2.clamp_(min=s.average.least).mul_(s.average.rho).add_(signal)).mul_(mean)
    return square.div_(torch.clamp(v, min=FLOOR, out=s2)).mul_(mean)
