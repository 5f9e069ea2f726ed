"""Random numbers as a pure function of (seed, step, parameter index, element index).

Nothing here has a state and nothing touches torch's generators: a number is the hash of its address.
The hash is integer tensor arithmetic, so it runs eagerly, inside ``torch.compile`` and on every
device with the same result.

An address is cut in two. The *key* is two 32-bit words per parameter and step, mixed from the seed,
the step, the parameter index and the high part of the element index (`stream_base`, `stream_key`,
computed for all parameters at once in int64). The *index* is the low 31 bits of the element index;
`bits` mixes index and key with two multiply-xorshift rounds in wrapping int32. The multipliers are the
well-known low-bias pair of C. Wellons' hash search (2018); the second key word enters between the
rounds, so that two keys give unrelated sequences and not a permutation of one.

The normal numbers are the inverse error function of a 24-bit uniform number. ``torch.erfinv`` does not
vectorise on CPU; the two polynomials below (the split of M. Giles, 2010, with coefficients fitted for
this file) have a relative error below 2e-7 and compile into the same kernel as the rest.
"""

from __future__ import annotations

from typing import TypeAlias

import torch
from torch import Tensor

INDEX_BITS = 31
"""Element indices are split into a low part of this many bits and a high part that joins the key."""

Word: TypeAlias = "int | Tensor"
"""A signed 32-bit key word: one number for a whole tensor, or an int32 tensor with one per element."""

_MASK = 0xFFFFFFFF
_GOLDEN = 0x9E3779B9
_MULTIPLY_1 = 0x7FEB352D
_MULTIPLY_2 = 0x846CA68B - (1 << 32)
_SALT = (0x243F6A88, 0x85A308D3)  # the first digits of pi: one salt for each key word

_CENTRE = (
    2.8531987439350814e-08,
    3.4372334312138264e-07,
    -3.5288260278321104e-06,
    -4.396740678203059e-06,
    0.0002186020719818771,
    -0.0012537076836451888,
    -0.004177707713097334,
    0.24664072692394257,
    1.5014094114303589,
)
_TAIL = (
    -0.00013182344264350832,
    6.076043064240366e-05,
    0.0012532888213172555,
    -0.0036336760967969894,
    0.005784050095826387,
    -0.007632669061422348,
    0.009432020597159863,
    1.0016746520996094,
    2.832977056503296,
)


def _mix(x: Tensor) -> Tensor:
    """A bijection of 32-bit words held in int64; only the low 32 bits of each product matter."""
    x = ((x ^ (x >> 16)) * _MULTIPLY_1) & _MASK
    x = ((x ^ (x >> 15)) * (_MULTIPLY_2 + (1 << 32))) & _MASK
    return x ^ (x >> 16)


def stream_base(seed: int, index: Tensor, high: Tensor) -> Tensor:
    """The part of the keys that does not change with the step: int64 ``[2, n]`` for n streams.

    Args:
        seed: any Python integer; its low 64 bits count.
        index: int64 ``[n]``, the index of the parameter of each stream.
        high: int64 ``[n]``, the element index above `INDEX_BITS` bits (0 for all but giant tensors).
    """
    word = torch.tensor(_SALT, dtype=torch.int64, device=index.device).unsqueeze(1)
    parts: tuple[Word, ...] = (seed & _MASK, (seed >> 32) & _MASK, index, high)
    for part in parts:
        word = _mix((word + _GOLDEN) & _MASK ^ part)
    return word


def stream_key(base: Tensor, step: Word) -> Tensor:
    """The keys of one step: int32 ``[2, n]``. ``step`` is a number or an int64 tensor ``[n]`` or ``[]``."""
    key = _mix((base + step * _GOLDEN) & _MASK)
    return (key - ((key >> 31) << 32)).to(torch.int32)


def _logical_shift(x: Tensor, by: int) -> Tensor:
    return (x >> by) & ((1 << (32 - by)) - 1)


def bits(index: Tensor, key0: Word, key1: Word) -> Tensor:
    """32 random bits (a signed int32, uniform over its whole range) for each int32 element index."""
    x = index ^ key0
    x = (x ^ _logical_shift(x, 16)) * _MULTIPLY_1 + key1
    x = (x ^ _logical_shift(x, 15)) * _MULTIPLY_2
    return x ^ _logical_shift(x, 16)


def drop_threshold(probability: float) -> int:
    """The int32 below which `bits` means "drop": P(bits < threshold) = probability to 2^-32."""
    return min(max(round(probability * (1 << 32)), 1), (1 << 32) - 1) - (1 << 31)


def bits_(x: Tensor, key0: Word, key1: Word, scratch: Tensor) -> Tensor:
    """`bits` in place, for eager loops over blocks: x holds the indices before and the bits after."""
    x.bitwise_xor_(key0)
    for by, multiply in ((16, _MULTIPLY_1), (15, _MULTIPLY_2)):
        torch.bitwise_right_shift(x, by, out=scratch)
        x.bitwise_xor_(scratch.bitwise_and_((1 << (32 - by)) - 1)).mul_(multiply)
        if by == 16:
            x.add_(key1)
    torch.bitwise_right_shift(x, 16, out=scratch)
    return x.bitwise_xor_(scratch.bitwise_and_(0xFFFF))


def zero_dropped_(values: Tensor, word: Tensor, threshold: int) -> Tensor:
    """Set float32 values to 0 where ``word < threshold``, in place; ``word`` is used up.

    Integer arithmetic only: clamping to {threshold - 1, threshold} makes 0 or all ones, which is and-ed
    with the bits of the values. Comparisons and ``torch.where`` are ten times slower on CPU.
    """
    word.clamp_(threshold - 1, threshold).sub_(threshold).bitwise_not_()
    values.view(torch.int32).bitwise_and_(word)
    return values


def keep_mask(index: Tensor, key0: Word, key1: Word, threshold: Word) -> Tensor:
    """True with probability 1 - p, where ``threshold = drop_threshold(p)``."""
    keep: Tensor = bits(index, key0, key1) >= threshold
    return keep


def normal(index: Tensor, key0: Word, key1: Word) -> Tensor:
    """Standard normal numbers in float32, independent of `keep_mask` at the same address."""
    word = bits(bits(index, key0, key1) + (_GOLDEN - (1 << 32)), key1, key0)
    return inverse_normal(((word >> 8).to(torch.float32) + 0.5) * 2.0**-23)


def inverse_normal(x: Tensor) -> Tensor:
    """sqrt(2) erfinv(x) for float32 x in (-1, 1)."""
    w: Tensor = -torch.log((1.0 - x) * (1.0 + x))
    centre, tail = w - 2.5, torch.sqrt(w) - 3.0
    inner: Tensor
    outer: Tensor
    inner, outer = torch.full_like(x, _CENTRE[0]), torch.full_like(x, _TAIL[0])
    for a, b in zip(_CENTRE[1:], _TAIL[1:], strict=True):
        inner, outer = inner * centre + a, outer * tail + b
    result: Tensor = torch.where(w < 5.0, inner, outer) * x * 2.0**0.5
    return result
