"""The update over the leaves of a tree, such that XLA gets little to compile.

Networks have many small arrays of few shapes (the scales and biases of their layers). Those with the same shape
are stacked along a new dimension and go through one computation; larger arrays are computed one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import Array

from genie_dg import check

from ._update import SMALL, Rule, Scalars, advance, compute_dtype, largest_number, update_of


class Leaf(NamedTuple):
    """What belongs to one parameter; ``p`` is None where the caller gave no parameters."""

    p: Array | None
    g: Array
    m: Array
    v: Array


Moved: TypeAlias = tuple[Array, Array, Array]
"""The update and the two new moments."""

UpdateLeaf: TypeAlias = Callable[[Leaf, Scalars, Array, Array], Moved]


def compiled_update(rule: Rule) -> UpdateLeaf:
    """`update_leaf` of one rule, which is traced once for all leaves of a shape."""

    def update(leaf: Leaf, s: Scalars, key: Array, threshold: Array) -> Moved:
        return update_leaf(rule, leaf, s, key, threshold)

    return jax.jit(update)


def update_leaf(rule: Rule, leaf: Leaf, s: Scalars, key: Array, threshold: Array) -> Moved:
    """The update and the new moments of one leaf; weights and updates saturate at the largest number."""
    p, g, m, v = leaf
    wide = compute_dtype(m.dtype)
    s = s.to(wide)
    m, v = advance(rule, p, g, m, v, s)
    bound = largest_number(g.dtype)

    def bounded(new: Array) -> Array:
        if p is not None:
            old, largest = p.astype(wide), largest_number(p.dtype)
            if rule.shrink:
                new = new - old * s.shrink
            new = jnp.clip(new, -largest - old, largest - old)  # the sum saturates
        return jnp.clip(new, -bound, bound)

    narrow = any(x is not None and x.dtype != wide for x in (p, g))
    new = update_of(rule, m, v, s, key, threshold, bounded, always=narrow or (rule.shrink and p is not None))
    return new.astype(g.dtype), m, v


def update_leaves(
    update: UpdateLeaf, leaves: list[Leaf], s: Scalars, keys: Array, threshold: Array
) -> list[Moved]:
    """``update`` of every leaf, with row i of ``keys`` for leaf i."""
    moved: dict[int, Moved] = {}
    for numbers in _groups(leaves):
        first = leaves[numbers[0]]
        if first.g.size == 0:
            moved |= {i: leaves[i][1:] for i in numbers}
        elif len(numbers) == 1:
            moved[numbers[0]] = update(first, s, keys[numbers[0]], threshold)
        else:
            moved |= _stacked(update, {i: leaves[i] for i in numbers}, s, keys, threshold)
    return [moved[i] for i in range(len(leaves))]


def _groups(leaves: list[Leaf]) -> list[list[int]]:
    """The numbers of the leaves that go through one computation."""
    groups: dict[Any, list[int]] = {}
    for i, leaf in enumerate(leaves):
        if leaf.g.shape != leaf.m.shape:
            raise check.InputError(
                f"GENIE got a gradient of shape {leaf.g.shape} for a parameter of shape {leaf.m.shape}; "
                "expected the same shape."
            )
        # The type has the sharding too, where that is part of it.
        alike = tuple(None if x is None else jax.typeof(x) for x in leaf)
        groups.setdefault(alike if leaf.g.size < SMALL else i, []).append(i)
    return list(groups.values())


def _stacked(
    update: UpdateLeaf, leaves: dict[int, Leaf], s: Scalars, keys: Array, threshold: Array
) -> dict[int, Moved]:
    """The update of leaves that are alike, as one array with a new first dimension."""
    rows = keys[jnp.asarray(list(leaves))]
    together: Leaf = jax.tree.map(lambda *parts: jnp.stack(parts), *leaves.values())
    result = jax.vmap(update, in_axes=(0, None, 0, None))(together, s, rows, threshold)
    return {i: (result[0][row], result[1][row], result[2][row]) for row, i in enumerate(leaves)}
