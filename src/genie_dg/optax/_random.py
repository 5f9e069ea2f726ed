"""The random numbers of `genie_dg._random` in JAX: the same hash of the same address, bit for bit.

An element's index is made from one counter for each dimension, and no array is reshaped: so a partitioned array
gets its numbers without communication, and the same ones however it is partitioned.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from genie_dg._constants import CENTRE, GOLDEN, INDEX_BITS, LANES, MASK_32, MULTIPLY_1, MULTIPLY_2, SALT, TAIL
from genie_dg.check import InputError

_FIRST, _SECOND = np.uint32(MULTIPLY_1), np.uint32(MULTIPLY_2)


def _round(x: Array, shift: int, factor: np.uint32) -> Array:
    return (x ^ (x >> shift)) * factor


def _mix(x: Array) -> Array:
    x = _round(_round(x, 16, _FIRST), 15, _SECOND)
    return x ^ (x >> 16)


def _halves(seed: int | Array) -> tuple[Array, Array]:
    """The low and the high word of a seed; a seed of 32 bits or fewer is continued by its sign."""
    if isinstance(seed, int):
        low, high = seed & MASK_32, (seed >> 32) & MASK_32
        return jnp.asarray(np.uint32(low)), jnp.asarray(np.uint32(high))
    wide = seed.dtype.itemsize > 4
    return seed.astype(jnp.uint32), (seed >> (32 if wide else 31)).astype(jnp.uint32)


def leaf_keys(seed: int | Array, number: int | np.ndarray[Any, Any], step: Array) -> Array:
    """The two key words, uint32 ``[2]``, of one parameter at one step; ``step`` is a whole number from 1.

    Numbers of parameters as a column ``[n, 1]`` give the keys of all of them, ``[n, 2]``.
    """
    word = jnp.asarray(SALT, dtype=jnp.uint32)
    for part in (*_halves(seed), np.asarray(number, np.uint32), np.uint32(0)):
        word = _mix((word + np.uint32(GOLDEN)) ^ part)  # the last is 0: no index has more than 31 bits
    return _mix(word + step.astype(jnp.uint32) * np.uint32(GOLDEN))


def leaf_words(shape: tuple[int, ...], key: Array) -> Array:
    """A random uint32 for each element of an array; elements are numbered in row-major order."""
    index = _element_indices(shape)
    row = _round((index >> (LANES.bit_length() - 1)) ^ key[0], 16, _FIRST) + key[1]
    row = _round(row, 15, _SECOND)
    row = row ^ (row >> 16)
    return _round((row ^ _lane_words(shape, index)) * _FIRST, 15, _SECOND)


def _lane_words(shape: tuple[int, ...], index: Array) -> Array:
    """What an element's place in its row adds; a short constant where rows end where the array's do."""
    if shape and shape[-1] % LANES == 0:
        constant = np.tile(_lane_word(np.arange(LANES, dtype=np.uint32)), shape[-1] // LANES)
        return jnp.broadcast_to(jnp.asarray(constant), shape)
    word: Array = _lane_word(index & np.uint32(LANES - 1))
    return word


def _lane_word(lane: Any) -> Any:
    return _mix((lane + np.uint32(1)) * np.uint32(GOLDEN))


def _element_indices(shape: tuple[int, ...]) -> Array:
    """The row-major index of every element, as uint32."""
    size = math.prod(shape)
    if size > 1 << INDEX_BITS:
        raise InputError(
            f"got an array of shape {shape} with {size} elements; genie_dg.optax numbers at most "
            f"2^{INDEX_BITS} of them, so keep its parts as leaves of their own."
        )
    index, stride = jnp.zeros(shape, jnp.uint32), 1
    for dim in reversed(range(len(shape))):
        if shape[dim] > 1:
            index = index + lax.broadcasted_iota(jnp.uint32, shape, dim) * np.uint32(stride)
        stride *= shape[dim]
    return index


def leaf_threshold(probability: float | Array) -> Array:
    """The int32 below which a word, taken as signed, means "drop"; with probability 0 none is."""
    if isinstance(probability, (int, float)):
        share = min(round(probability * (1 << 32)), MASK_32)
        unsigned = jnp.asarray(np.uint32(max(share, 1) if probability > 0 else 0))
    else:
        unsigned = (probability.astype(jnp.result_type(float)) * 2.0**32).astype(jnp.uint32)
    return _signed(unsigned ^ np.uint32(1 << 31))


def _signed(word: Array) -> Array:
    return lax.bitcast_convert_type(word, jnp.int32)


def dropped(word: Array, threshold: Array) -> Array:
    """True with probability p, where ``threshold = leaf_threshold(p)``."""
    return _signed(word) < threshold


def leaf_normal(word: Array) -> Array:
    """Standard normal numbers in float32, independent of `dropped` of the same words."""
    x = _round(_round(word + np.uint32(GOLDEN), 16, _FIRST), 15, _SECOND)
    return _inverse_normal(((_signed(x) >> 8).astype(jnp.float32) + 0.5) * 2.0**-23)


def _inverse_normal(x: Array) -> Array:
    """sqrt(2) erfinv(x) for float32 x in (-1, 1)."""
    w = -jnp.log((1.0 - x) * (1.0 + x))
    centre, tail = w - 2.5, jnp.sqrt(w) - 3.0
    inner, outer = jnp.full_like(x, CENTRE[0]), jnp.full_like(x, TAIL[0])
    for a, b in zip(CENTRE[1:], TAIL[1:], strict=True):
        inner, outer = inner * centre + a, outer * tail + b
    result: Array = jnp.where(w < 5.0, inner, outer) * x * 2.0**0.5
    return result
