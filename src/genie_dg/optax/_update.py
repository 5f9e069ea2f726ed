r"""The update of `genie_dg.optim._update` in JAX, as pure functions of one array.

Under ``jit`` the number of the step is not known, so the scalars of `averaging` are computed on the device, in
float32 unless 64 bits are enabled. They are written without the differences that would cancel there:
:math:`1 - \beta^t` is ``-expm1(t log(beta))``, and

.. math:: 1 - \rho = \frac{2 \beta (1 - \beta^{t-1})}{(1 + \beta)(1 - \beta^t)} .

In float32 gate and noise of an entry with :math:`s^2 \le 0.1` are exactly 1 and 0, and :math:`s^2` is at most
:math:`v / (c (1 - \rho))`. Where that bound says so for a whole array, as it nearly always does in ordinary
networks, the array is *calm* and `calm_update` is taken in place of `full_update`. The choice is a ``where``
with one condition for the whole array and not a ``lax.cond``: XLA fuses it with what the caller does with the
update, and LLVM makes two loops of it, of which one runs, so that the update is never an array of its own.
Only the two sums of kappa, whose result is one number, are behind a ``lax.cond``.

What is kept out of the calm loop counts: bounds against overflow are put on the full update alone, because
:math:`|m| \le \sqrt{v}` bounds a calm one, and `lesser` is one instruction where ``jnp.minimum`` is several.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from genie_dg._constants import CALM, FLOOR, HIGHEST_INVERSE, ROUNDING, SINGLE

from . import _random

Number: TypeAlias = "float | Array"
"""A Python number, which takes the dtype of what it meets, or an array of no dimensions."""


LARGEST_SIZE = 2.0**60
"""A calm update with a larger step size is bounded like any other."""

SMALL = 4096
"""Arrays with fewer elements are always computed in full: a choice takes longer to compile than it saves."""


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


class Scalars(NamedTuple):
    """The numbers of one step."""

    beta: Number
    weight: Number  # 1 - beta
    inverse_correction: Number  # 1 / (1 - beta^t)
    inverse_freedom: Number  # 1 / (1 - rho), and 0 when there is one sample
    rho: Number
    least: Number  # the variance of a single sample, and 0 when there are more
    size: Number  # lr, times 1 / (1 - p) in the released form
    shrink: Number  # lr * weight_decay when the decay is decoupled
    l2: Number  # weight_decay when it is coupled
    noise_std: Number

    def to(self, dtype: Any) -> Scalars:
        """The same in another dtype, so that no array is widened by meeting them."""
        return Scalars(*(x if isinstance(x, float) else x.astype(dtype) for x in self))


class Draw(NamedTuple):
    """The random word of every entry, and the int32 below which it means "drop"."""

    word: Array
    threshold: Array


def averaging(beta: Number, step: Array) -> tuple[Number, Number, Number, Number, Number, Number]:
    """The first six of `Scalars` for step t = 1, 2, ..."""
    t = step.astype(jnp.result_type(float))
    smallest = float(np.finfo(np.float32).tiny)
    log = math.log(max(beta, smallest)) if isinstance(beta, float) else jnp.log(jnp.maximum(beta, smallest))
    correction, before = -jnp.expm1(t * log), -jnp.expm1((t - 1) * log)
    rho = (1 - beta) * (2 - correction) / ((1 + beta) * correction)
    freedom = 2 * beta * before / ((1 + beta) * correction)
    single = freedom <= SINGLE
    inverse = jnp.where(single, 0.0, 1 / jnp.where(single, 1.0, freedom))
    return beta, 1 - beta, 1 / correction, inverse, rho, jnp.where(single, FLOOR, 0.0)


def compute_dtype(dtype: Any) -> Any:
    """float64 stays; everything narrower is computed in float32 and stored in its own dtype."""
    return jnp.float64 if dtype == jnp.float64 else jnp.float32


def advance(rule: Rule, p: Array | None, g: Array, m: Array, v: Array, s: Scalars) -> tuple[Array, Array]:
    """The new moments, in the dtypes of the old ones; the second saturates at the largest number.

    The bound is put on the second term and not on the sum: XLA computes a sum under a bound again wherever it
    is used, and for that keeps a copy of the old moments.
    """
    wide = compute_dtype(m.dtype)
    g = g.astype(wide)
    if rule.maximize:
        g = -g
    if rule.l2 and p is not None:
        g = g + p.astype(wide) * s.l2
    new_m = m.astype(wide) * s.beta + g * s.weight
    old_v = v.astype(wide) * s.beta
    new_v = old_v + lesser(largest_number(v.dtype) - old_v, g * g * s.weight)
    return new_m.astype(m.dtype), new_v.astype(v.dtype)


def lesser(a: Number, b: Array) -> Array:
    """The lesser of two; ``b`` where one is not a number, which ``jnp.minimum`` takes pains to keep."""
    return jnp.where(a < b, a, b)


def greater(a: Number, b: Array) -> Array:
    """The greater of two; ``b`` where one is not a number."""
    return jnp.where(a > b, a, b)


def largest_number(dtype: Any) -> float:
    """The largest finite number of a dtype."""
    return float(jnp.finfo(dtype).max)  # type: ignore[no-untyped-call]


def _doubled(s: Scalars, dtype: Any) -> Number:
    epsilon = float(jnp.finfo(dtype).eps)  # type: ignore[no-untyped-call]
    return 2.0 - 2.0 * ROUNDING * epsilon / s.rho


def spread(second: Array, mean: Array, s: Scalars) -> Array:
    """The mean square less the squared mean, 0 within rounding of 0; what overflows ends large."""
    square, largest = mean * mean, largest_number(second.dtype)
    d = _replaced(second - square, largest / 4)
    twice = _replaced(second * _doubled(s, second.dtype) - (square + square), largest / 2)
    return jnp.maximum(jnp.minimum(d, twice), 0.0)


def _replaced(x: Array, value: float) -> Array:
    return jnp.where(jnp.isfinite(x), x, value)


def gate(rule: Rule, s2: Array) -> Array:
    """The gate a = tanh(1 / s^2), bounded in the released form; in float32 exactly 1 where s^2 <= 0.1."""
    inverse = jnp.abs(1.0 / s2)  # -0 where denormal numbers are flushed
    if s2.dtype != jnp.float64:
        return jnp.where(inverse >= 1 / CALM, 1.0, jnp.tanh(inverse))
    return jnp.tanh(jnp.minimum(inverse, HIGHEST_INVERSE) if rule.formulation == "released" else inverse)


class Direction(NamedTuple):
    """The parts of one step, entry by entry, for any finite moments."""

    mean: Array  # bias-corrected momentum
    gate: Array  # a
    trust: Array  # q
    step: Array  # the direction without noise


def direction(rule: Rule, m: Array, v: Array, s: Scalars) -> Direction:
    """Gate, trust and direction of every entry, safe against overflow; NaN where m is not finite."""
    largest = largest_number(m.dtype)
    mean = jnp.clip(m * s.inverse_correction, -largest, largest) + m * 0.0
    if rule.formulation == "released":
        s2 = spread(v * s.inverse_correction, mean, s) * s.inverse_freedom
        s2 = jnp.maximum(jnp.minimum(s2, largest), s.least)
        signal = jnp.minimum(mean * mean, largest / 4) + FLOOR
        a, q = gate(rule, s2), signal / (signal + s2 * s.rho)
        return Direction(mean, a, q, mean * q * a if rule.precondition else mean)
    s2 = jnp.maximum(spread(v, m, s), FLOOR)
    a, q = gate(rule, s2), jnp.minimum(m * m, largest) / jnp.maximum(v, FLOOR)
    return Direction(mean, a, q, mean * (q * a) if rule.precondition else mean)


def kappa_of(d: Direction) -> Array:
    """Kappa = sum(a |mean| q) / sum(a) over finite entries; 0 when no entry has a gate."""
    finite = jnp.isfinite(d.mean)
    top = jnp.minimum(d.gate * jnp.abs(d.mean) * d.trust, largest_number(d.mean.dtype) / 2**40)
    above, below = jnp.sum(jnp.where(finite, top, 0.0)), jnp.sum(jnp.where(finite, d.gate, 0.0))
    return jnp.where(below > 0, above / jnp.where(below > 0, below, 1.0), 0.0)


def full_update(rule: Rule, m: Array, v: Array, s: Scalars, draw: Draw, scale: Number) -> Array:
    """What is added to the parameter, decay apart, for any moments; ``scale`` is that of the noise."""
    d = direction(rule, m, v, s)
    step = d.step
    if rule.noise:
        step = step + (1.0 - d.gate) * scale * _random.normal(draw.word).astype(m.dtype)
    if rule.mask:
        largest = largest_number(m.dtype)
        step = jnp.clip(step, -largest, largest) * ~_random.drop_mask(draw.word, draw.threshold)
    return -step * s.size


def calm_update(rule: Rule, m: Array, v: Array, s: Scalars, draw: Draw) -> Array:
    """`full_update` where all gates are 1 and the noise is 0, without care for overflow."""
    mean = m * s.inverse_correction
    if not rule.precondition:
        step = mean
    elif rule.formulation == "released":
        square, second = mean * mean, v * s.inverse_correction
        s2 = lesser(second * _doubled(s, m.dtype) - (square + square), second - square) * s.inverse_freedom
        signal = square + FLOOR
        step = signal / (greater(s.least, s2) * s.rho + signal) * mean
    else:
        step = m * m / greater(FLOOR, v) * mean
    step = -step * s.size
    if rule.mask:
        step = jnp.where(_random.drop_mask(draw.word, draw.threshold), 0.0, step)
    return step


def largest_variance(rule: Rule, v: Array, s: Scalars) -> Array:
    """A bound of every s^2, NaN if an entry is."""
    largest = jnp.max(v)
    if rule.formulation == "released":
        return jnp.maximum(largest * s.inverse_correction * s.inverse_freedom, s.least)
    return largest


def update_of(
    rule: Rule,
    m: Array,
    v: Array,
    s: Scalars,
    key: Array,
    threshold: Array,
    bounded: Callable[[Array], Array],
    always: bool,
) -> Array:
    """What is added to the parameter, decay apart, for new moments, in the dtype of the computation.

    Args:
        rule: the switches.
        m: the new first moment.
        v: the new second moment.
        s: the numbers of the step.
        key: of the random numbers.
        threshold: of the mask.
        bounded: puts an update within the bounds of its dtype.
        always: bound calm updates, too; else they are known to be small.
    """
    wide = compute_dtype(m.dtype)
    m, v = m.astype(wide), v.astype(wide)
    draw = Draw(_random.element_words(m.shape, key), threshold)
    if wide == jnp.float64 or not (rule.noise or rule.precondition) or m.size < SMALL:
        return bounded(full_update(rule, m, v, s, draw, noise_scale(rule, m, v, s, None)))
    # False for NaN; half, because the bound was rounded
    calm = (largest_variance(rule, v, s) <= CALM / 2) & (jnp.abs(s.size) <= LARGEST_SIZE)
    full = bounded(full_update(rule, m, v, s, draw, noise_scale(rule, m, v, s, calm)))
    short = calm_update(rule, m, v, s, draw)
    return jnp.where(calm, bounded(short) if always else short, full)


def noise_scale(rule: Rule, m: Array, v: Array, s: Scalars, calm: Array | None) -> Number:
    """What the normal numbers are multiplied by; not computed where the array is known to be calm."""
    if rule.formulation == "algorithm1" or not rule.noise:
        return s.noise_std

    def kappa(*operands: Any) -> Array:
        return kappa_of(direction(rule, *operands))

    if calm is None:
        return kappa(m, v, s)
    number: Array = lax.cond(calm, lambda *_: jnp.zeros((), m.dtype), kappa, m, v, s)
    return number
