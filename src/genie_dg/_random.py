"""Random numbers as a pure function of (seed, step, parameter index, element index).

Nothing here has a state and nothing touches torch's generators: a number is the hash of its address.
The hash is integer tensor arithmetic, so it runs eagerly, inside ``torch.compile`` and on every
device with the same result.

An address is cut in three. The *key* is two 32-bit words per parameter and step, mixed from the seed,
the step, the parameter index and the element index above 2^31 (`stream_base`, `stream_key`, computed for all
parameters at once in int64). The rest of the element index is a *row* of 256 elements and a *lane* in it. A row
word is the key and the row after two multiply-xorshift rounds (`row_words`); an element's word is its row word
and the fixed word of its lane after one round more (`element_words`). So the long hash runs once per row and
the short one once per element, in wrapping int32, with the high bits the best. The multipliers are the
well-known low-bias pair of C. Wellons' hash search (2018); the second key word enters between the rounds, so
that two keys give unrelated sequences and not a permutation of one.

The normal numbers are the inverse error function of a 24-bit uniform number. ``torch.erfinv`` does not
vectorise on CPU; the two polynomials below (the split of M. Giles, 2010, with coefficients fitted for
this file) have a relative error below 2e-7 and compile into the same kernel as the rest.
"""

from __future__ import annotations

import functools
from typing import TypeAlias

import torch
from torch import Tensor

from ._constants import CENTRE, GOLDEN, MULTIPLY_1, SALT, TAIL
from ._constants import INDEX_BITS as INDEX_BITS
from ._constants import LANES as LANES
from ._constants import MASK_32 as _MASK
from ._constants import MULTIPLY_2 as UNSIGNED_MULTIPLY_2

Word: TypeAlias = "int | Tensor"
"""A signed 32-bit key word: one number for a whole tensor, or an int32 tensor with one per element."""

_MULTIPLY_2 = UNSIGNED_MULTIPLY_2 - (1 << 32)  # as a signed 32-bit word


def _mix(x: Tensor) -> Tensor:
    """A bijection of 32-bit words held in int64; only the low 32 bits of each product matter."""
    x = ((x ^ (x >> 16)) * MULTIPLY_1) & _MASK
    x = ((x ^ (x >> 15)) * UNSIGNED_MULTIPLY_2) & _MASK
    return x ^ (x >> 16)


def stream_base(seed: int, index: Tensor, high: Tensor) -> Tensor:
    """The part of the keys that does not change with the step: int64 ``[2, n]`` for n streams.

    Args:
        seed: any Python integer; its low 64 bits count.
        index: int64 ``[n]``, the index of the parameter of each stream.
        high: int64 ``[n]``, the element index above `INDEX_BITS` bits (0 for all but giant tensors).
    """
    word = torch.tensor(SALT, dtype=torch.int64, device=index.device).unsqueeze(1)
    parts: tuple[Word, ...] = (seed & _MASK, (seed >> 32) & _MASK, index, high)
    for part in parts:
        word = _mix((word + GOLDEN) & _MASK ^ part)
    return word


def stream_key(base: Tensor, step: Word) -> Tensor:
    """The keys of one step: int32 ``[2, n]``. ``step`` is a number or an int64 tensor ``[n]`` or ``[]``."""
    key = _mix((base + step * GOLDEN) & _MASK)
    return _signed(key)


def _signed(word: Tensor) -> Tensor:
    return (word - ((word >> 31) << 32)).to(torch.int32)


def _logical_shift(x: Tensor, by: int) -> Tensor:
    return (x >> by) & ((1 << (32 - by)) - 1)


def lane_words(device: torch.device) -> Tensor:
    """The fixed int32 words of the lanes."""
    return _new_lane_words(device) if torch.compiler.is_compiling() else _kept_lane_words(device)


def _new_lane_words(device: torch.device) -> Tensor:
    lanes = torch.arange(1, LANES + 1, dtype=torch.int64)
    return _signed(_mix(lanes * GOLDEN & _MASK)).to(device)


_kept_lane_words = functools.lru_cache(maxsize=32)(_new_lane_words)


def row_words(rows: Tensor, key0: Word, key1: Word) -> Tensor:
    """32 random bits for each int32 row number."""
    x = rows ^ key0
    x = (x ^ _logical_shift(x, 16)) * MULTIPLY_1 + key1
    x = (x ^ _logical_shift(x, 15)) * _MULTIPLY_2
    return x ^ _logical_shift(x, 16)


def element_words(row: Tensor, lane: Tensor) -> Tensor:
    """A random signed int32, uniform over its range, for each pair of a row word and a lane word."""
    x = (row ^ lane) * MULTIPLY_1
    return (x ^ _logical_shift(x, 15)) * _MULTIPLY_2


def element_words_(row: Tensor, lane: Tensor, out: Tensor, scratch: Tensor) -> Tensor:
    """`element_words` without temporaries, for eager loops over blocks."""
    torch.bitwise_xor(row, lane, out=out).mul_(MULTIPLY_1)
    torch.bitwise_right_shift(out, 15, out=scratch)
    return out.bitwise_xor_(scratch.bitwise_and_((1 << 17) - 1)).mul_(_MULTIPLY_2)


def drop_threshold(probability: float) -> int:
    """The int32 below which `bits` means "drop": P(bits < threshold) = probability to 2^-32."""
    return min(max(round(probability * (1 << 32)), 1), (1 << 32) - 1) - (1 << 31)


def zero_dropped_(values: Tensor, word: Tensor, threshold: int) -> Tensor:
    """Set float32 values to 0 where ``word < threshold``, in place; ``word`` is used up.

    Integer arithmetic only: clamping to {threshold - 1, threshold} makes 0 or all ones, which is and-ed
    with the bits of the values. Comparisons and ``torch.where`` are ten times slower on CPU.
    """
    word.clamp_(threshold - 1, threshold).sub_(threshold).bitwise_not_()
    values.view(torch.int32).bitwise_and_(word)
    return values


def drop_mask(word: Tensor, threshold: Word) -> Tensor:
    """True with probability p, where ``threshold = drop_threshold(p)``."""
    drop: Tensor = word < threshold
    return drop


def normal(word: Tensor) -> Tensor:
    """Standard normal numbers in float32, independent of `drop_mask` of the same words."""
    x = word + (GOLDEN - (1 << 32))
    x = (x ^ _logical_shift(x, 16)) * MULTIPLY_1
    x = (x ^ _logical_shift(x, 15)) * _MULTIPLY_2
    return inverse_normal(((x >> 8).to(torch.float32) + 0.5) * 2.0**-23)


def inverse_normal(x: Tensor) -> Tensor:
    """sqrt(2) erfinv(x) for float32 x in (-1, 1)."""
    w: Tensor = -torch.log((1.0 - x) * (1.0 + x))
    centre, tail = w - 2.5, torch.sqrt(w) - 3.0
    inner: Tensor
    outer: Tensor
    inner, outer = torch.full_like(x, CENTRE[0]), torch.full_like(x, TAIL[0])
    for a, b in zip(CENTRE[1:], TAIL[1:], strict=True):
        inner, outer = inner * centre + a, outer * tail + b
    result: Tensor = torch.where(w < 5.0, inner, outer) * x * 2.0**0.5
    return result
