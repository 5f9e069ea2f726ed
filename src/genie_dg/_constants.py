"""The numbers of the rule and of its random numbers, for torch and for JAX: no library is imported here."""

from __future__ import annotations

FLOOR = 1e-8
"""The variance of a single sample; also the guard of the trust ratio's denominator."""

ROUNDING = 4.0
"""What a sample adds to the rounding of the two averages, in machine epsilons: see `_moments`."""

SINGLE = 1e-6
"""Where 1 - rho is at most this, the averages hold one sample and there is no variance."""

CALM = 0.1
"""Entries with a variance at or below this get no noise in float32."""

HIGHEST_INVERSE = 10.0
"""The bound of 1 / s^2 in the gate of the released formulation."""

INDEX_BITS = 31
"""Element indices are split into a low part of this many bits and a high part that joins the key."""

LANES = 256
"""Elements of a row; a power of two and a multiple of every vector width."""

MASK_32 = 0xFFFFFFFF
GOLDEN = 0x9E3779B9
MULTIPLY_1 = 0x7FEB352D
MULTIPLY_2 = 0x846CA68B
SALT = (0x243F6A88, 0x85A308D3)  # the first digits of pi: one salt for each key word

CENTRE = (
    2.8531987439350814e-08, 3.4372334312138264e-07, -3.5288260278321104e-06, -4.396740678203059e-06,
    0.0002186020719818771, -0.0012537076836451888, -0.004177707713097334, 0.24664072692394257,
    1.5014094114303589,
)  # fmt: skip
"""The inverse error function in the middle, highest power first: see `_random.inverse_normal`."""

TAIL = (
    -0.00013182344264350832, 6.076043064240366e-05, 0.0012532888213172555, -0.0036336760967969894,
    0.005784050095826387, -0.007632669061422348, 0.009432020597159863, 1.0016746520996094,
    2.832977056503296,
)  # fmt: skip
"""The same in its tails."""
