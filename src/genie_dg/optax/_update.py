r"""The update of `genie_dg.optim._update` in JAX, as pure functions of one array.

Under ``jit`` the number of the step is not known, so the scalars of `averages_at` are computed on the device,
in float32 unless 64 bits are enabled. They are written without the differences that would cancel there:
:math:`1 - \beta^t` is ``-expm1(t log(beta))``, and

.. math:: 1 - \rho = \frac{2 \beta (1 - \beta^{t-1})}{(1 + \beta)(1 - \beta^t)} .

In float32 gate and noise of an entry with :math:`s^2 \le 0.1` are exactly 1 and 0, and :math:`s^2` is at most
:math:`v / (c (1 - \rho))`. Where that bound says so for a whole array, as it nearly always does in ordinary
networks, the array is *calm* and `_calm_update` is taken in place of `_full_update`. The choice is a ``where``
with one condition for the whole array and not a ``lax.cond``: XLA fuses it with what the caller does with the
update, and LLVM makes two loops of it, of which one runs, so that the update is never an array of its own.
Only the two sums of kappa, whose result is one number, are behind a ``lax.cond``.

What is kept out of the calm loop counts: bounds against overflow are put on the full update alone, because
:math:`|m| \le \sqrt{v}` bounds a calm one, and `_lesser` is one instruction where ``jnp.minimum`` is several.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypeAlias

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from genie_dg._constants import CALM, FLOOR, HIGHEST_INVERSE, ROUNDING, SINGLE
from genie_dg._options import UpdateRule

from . import _random

Number: TypeAlias = "float | Array"
"""A Python number, which takes the dtype of what it meets, or an array of no dimensions."""


_LARGEST_SIZE = 2.0**60
"""A calm update with a larger step size is bounded like any other."""

SMALL_ARRAY = 4096
"""Arrays with fewer elements are always computed in full: a choice takes longer to compile than it saves."""


class StepNumbers(NamedTuple):
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

    def to(self, dtype: Any) -> StepNumbers:
        """The same in another dtype, so that no array is widened by meeting them."""
        return StepNumbers(*(x if isinstance(x, float) else x.astype(dtype) for x in self))


class _Draw(NamedTuple):
    """The random word of every entry, and the int32 below which it means "drop"."""

    word: Array
    threshold: Array


def averages_at(beta: Number, step: Array) -> tuple[Number, Number, Number, Number, Number, Number]:
    """The first six of `StepNumbers` for step t = 1, 2, ..."""
    t = step.astype(jnp.result_type(float))
    smallest = float(np.finfo(np.float32).tiny)
    log = math.log(max(beta, smallest)) if isinstance(beta, float) else jnp.log(jnp.maximum(beta, smallest))
    correction, before = -jnp.expm1(t * log), -jnp.expm1((t - 1) * log)
    rho = (1 - beta) * (2 - correction) / ((1 + beta) * correction)
    freedom = 2 * beta * before / ((1 + beta) * correction)
    single = freedom <= SINGLE
    inverse = jnp.where(single, 0.0, 1 / jnp.where(single, 1.0, freedom))
    return beta, 1 - beta, 1 / correction, inverse, rho, jnp.where(single, FLOOR, 0.0)


def _compute_dtype(dtype: Any) -> Any:
    """float64 stays; everything narrower is computed in float32 and stored in its own dtype."""
    return jnp.float64 if dtype == jnp.float64 else jnp.float32


def _advance(
    rule: UpdateRule, p: Array | None, g: Array, m: Array, v: Array, s: StepNumbers
) -> tuple[Array, Array]:
    """The new moments, in the dtypes of the old ones; the second saturates at the largest number.

    The bound is put on the second term and not on the sum: XLA computes a sum under a bound again wherever it
    is used, and for that keeps a copy of the old moments.
    """
    wide = _compute_dtype(m.dtype)
    g = g.astype(wide)
    if rule.maximize:
        g = -g
    if rule.l2 and p is not None:
        g = g + p.astype(wide) * s.l2
    new_m = m.astype(wide) * s.beta + g * s.weight
    old_v = v.astype(wide) * s.beta
    new_v = old_v + _lesser(_largest_number(v.dtype) - old_v, g * g * s.weight)
    return new_m.astype(m.dtype), new_v.astype(v.dtype)


def _lesser(a: Number, b: Array) -> Array:
    """The _lesser of two; ``b`` where one is not a number, which ``jnp.minimum`` takes pains to keep."""
    return jnp.where(a < b, a, b)


def _greater(a: Number, b: Array) -> Array:
    """The _greater of two; ``b`` where one is not a number."""
    return jnp.where(a > b, a, b)


def _largest_number(dtype: Any) -> float:
    """The largest finite number of a dtype."""
    return float(jnp.finfo(dtype).max)  # type: ignore[no-untyped-call]


def _doubled(s: StepNumbers, dtype: Any) -> Number:
    epsilon = float(jnp.finfo(dtype).eps)  # type: ignore[no-untyped-call]
    return 2.0 - 2.0 * ROUNDING * epsilon / s.rho


def _spread(second: Array, mean: Array, s: StepNumbers) -> Array:
    """The mean square less the squared mean, 0 within rounding of 0; what overflows ends large."""
    square, largest = mean * mean, _largest_number(second.dtype)
    d = _replaced(second - square, largest / 4)
    twice = _replaced(second * _doubled(s, second.dtype) - (square + square), largest / 2)
    return jnp.maximum(jnp.minimum(d, twice), 0.0)


def _replaced(x: Array, value: float) -> Array:
    return jnp.where(jnp.isfinite(x), x, value)


def _gate(rule: UpdateRule, s2: Array) -> Array:
    """The gate a = tanh(1 / s^2), bounded in the released form; in float32 exactly 1 where s^2 <= 0.1."""
    inverse = jnp.abs(1.0 / s2)  # -0 where denormal numbers are flushed
    if s2.dtype != jnp.float64:
        return jnp.where(inverse >= 1 / CALM, 1.0, jnp.tanh(inverse))
    return jnp.tanh(jnp.minimum(inverse, HIGHEST_INVERSE) if rule.formulation == "released" else inverse)


class _Direction(NamedTuple):
    """The parts of one step, entry by entry, for any finite moments."""

    mean: Array  # bias-corrected momentum
    gate: Array  # a
    trust: Array  # q
    step: Array  # the direction without noise


def _direction(rule: UpdateRule, m: Array, v: Array, s: StepNumbers) -> _Direction:
    """Gate, trust and direction of every entry, safe against overflow; NaN where m is not finite."""
    largest = _largest_number(m.dtype)
    mean = jnp.clip(m * s.inverse_correction, -largest, largest) + m * 0.0
    if rule.formulation == "released":
        s2 = _spread(v * s.inverse_correction, mean, s) * s.inverse_freedom
        s2 = jnp.maximum(jnp.minimum(s2, largest), s.least)
        signal = jnp.minimum(mean * mean, largest / 4) + FLOOR
        a, q = _gate(rule, s2), signal / (signal + s2 * s.rho)
        return _Direction(mean, a, q, mean * q * a if rule.precondition else mean)
    s2 = jnp.maximum(_spread(v, m, s), FLOOR)
    a, q = _gate(rule, s2), jnp.minimum(m * m, largest) / jnp.maximum(v, FLOOR)
    return _Direction(mean, a, q, mean * (q * a) if rule.precondition else mean)


def _kappa_of(d: _Direction) -> Array:
    """Kappa = sum(a |mean| q) / sum(a) over finite entries; 0 when no entry has a gate."""
    finite = jnp.isfinite(d.mean)
    top = jnp.minimum(d.gate * jnp.abs(d.mean) * d.trust, _largest_number(d.mean.dtype) / 2**40)
    above, below = jnp.sum(jnp.where(finite, top, 0.0)), jnp.sum(jnp.where(finite, d.gate, 0.0))
    return jnp.where(below > 0, above / jnp.where(below > 0, below, 1.0), 0.0)


def _full_update(rule: UpdateRule, m: Array, v: Array, s: StepNumbers, draw: _Draw, scale: Number) -> Array:
    """What is added to the parameter, decay apart, for any moments; ``scale`` is that of the noise."""
    d = _direction(rule, m, v, s)
    step = d.step
    if rule.noise:
        step = step + (1.0 - d.gate) * scale * _random.leaf_normal(draw.word).astype(m.dtype)
    if rule.mask:
        largest = _largest_number(m.dtype)
        step = jnp.clip(step, -largest, largest) * ~_random.dropped(draw.word, draw.threshold)
    return -step * s.size


def _calm_update(rule: UpdateRule, m: Array, v: Array, s: StepNumbers, draw: _Draw) -> Array:
    """`_full_update` where all gates are 1 and the noise is 0, without care for overflow."""
    mean = m * s.inverse_correction
    if not rule.precondition:
        step = mean
    elif rule.formulation == "released":
        square, second = mean * mean, v * s.inverse_correction
        s2 = _lesser(second * _doubled(s, m.dtype) - (square + square), second - square) * s.inverse_freedom
        signal = square + FLOOR
        step = signal / (_greater(s.least, s2) * s.rho + signal) * mean
    else:
        step = m * m / _greater(FLOOR, v) * mean
    step = -step * s.size
    if rule.mask:
        step = jnp.where(_random.dropped(draw.word, draw.threshold), 0.0, step)
    return step


def _largest_variance(rule: UpdateRule, v: Array, s: StepNumbers) -> Array:
    """A bound of every s^2, NaN if an entry is."""
    largest = jnp.max(v)
    if rule.formulation == "released":
        return jnp.maximum(largest * s.inverse_correction * s.inverse_freedom, s.least)
    return largest


def _noise_scale(rule: UpdateRule, m: Array, v: Array, s: StepNumbers, calm: Array | None) -> Number:
    """What the normal numbers are multiplied by; not computed where the array is known to be calm."""
    if rule.formulation == "algorithm1" or not rule.noise:
        return s.noise_std

    def kappa(*operands: Any) -> Array:
        return _kappa_of(_direction(rule, *operands))

    if calm is None:
        return kappa(m, v, s)
    number: Array = lax.cond(calm, lambda *_: jnp.zeros((), m.dtype), kappa, m, v, s)
    return number


class Leaf(NamedTuple):
    """What belongs to one parameter; ``p`` is None where the caller gave no parameters."""

    p: Array | None
    g: Array
    m: Array
    v: Array


Moved: TypeAlias = tuple[Array, Array, Array]
"""The update and the two new moments."""


def update_leaf(rule: UpdateRule, leaf: Leaf, s: StepNumbers, key: Array, threshold: Array) -> Moved:
    """The update and the new moments of one leaf; weights and updates saturate at the largest number."""
    p, g, m, v = leaf
    wide = _compute_dtype(m.dtype)
    s = s.to(wide)
    m, v = _advance(rule, p, g, m, v, s)
    bound = _largest_number(g.dtype)

    def bounded(new: Array) -> Array:
        if p is not None:
            old, largest = p.astype(wide), _largest_number(p.dtype)
            if rule.shrink:
                new = new - old * s.shrink
            new = jnp.clip(new, -largest - old, largest - old)  # the sum saturates
        return jnp.clip(new, -bound, bound)

    m_wide, v_wide = m.astype(wide), v.astype(wide)
    draw = _Draw(_random.leaf_words(m.shape, key), threshold)
    if wide == jnp.float64 or not (rule.noise or rule.precondition) or m.size < SMALL_ARRAY:
        scale = _noise_scale(rule, m_wide, v_wide, s, None)
        return bounded(_full_update(rule, m_wide, v_wide, s, draw, scale)).astype(g.dtype), m, v
    # False for NaN; half, because the bound was rounded
    calm = (_largest_variance(rule, v_wide, s) <= CALM / 2) & (jnp.abs(s.size) <= _LARGEST_SIZE)
    full = bounded(_full_update(rule, m_wide, v_wide, s, draw, _noise_scale(rule, m_wide, v_wide, s, calm)))
    short = _calm_update(rule, m_wide, v_wide, s, draw)
    narrow = any(x is not None and x.dtype != wide for x in (p, g))
    if narrow or (rule.shrink and p is not None):  # other calm updates are known to be small
        short = bounded(short)
    return jnp.where(calm, short, full).astype(g.dtype), m, v
