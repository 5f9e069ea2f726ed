"""GENIE as a transformation of gradients: options, state, and the leaves of a tree. The update is in `_update`.

Networks have many small arrays of few shapes (the scales and biases of their layers). Those with the same shape
are stacked along a new dimension and go through one computation, so that XLA gets little to compile; larger
arrays are computed one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]
from jax import Array

from genie_dg import check
from genie_dg._options import OptionError, UpdateRule, check_options

from . import _random
from ._update import SMALL_ARRAY, Leaf, Moved, Number, StepNumbers, averages_at, update_leaf

_SWITCHES = ("noise", "precondition", "decoupled_weight_decay", "maximize")


class GenieState(NamedTuple):
    """The steps so far, and the two moments in the dtypes of the parameters."""

    count: Array  # type: ignore[assignment]  # the name that optax has for it; tuples have a method count
    mu: Any
    nu: Any


def genie(
    lr: float | Array | optax.Schedule = 0.015,
    *,
    beta: float | Array = 0.95,
    dropout: float | Array = 0.4,
    noise: bool = True,
    precondition: bool = True,
    formulation: str = "released",
    noise_std: float | Array = 0.1,
    weight_decay: float | Array = 0.0,
    decoupled_weight_decay: bool = False,
    maximize: bool = False,
    seed: int | Array = 0,
) -> optax.GradientTransformation:
    r"""GENIE, the rule of `genie_dg.optim.genie.GENIE`, whose docstring has the formulas.

    Mask and noise are those of the torch optimizer: a function of (seed, step, number of the parameter, index
    of the element). The leaves of the tree are numbered in the order of ``jax.tree.leaves``, from 0, so a dict
    counts its keys in sorted order; a torch optimizer that is given its parameters in that order does the same
    steps. What `optax.masked` leaves out is not counted.

    Args:
        lr: the step size; a number, an array of one element, or a schedule, called with the steps so far.
        beta: decay of both moving averages, in [0, 1).
        dropout: probability that an entry is not updated in a step, in [0, 1).
        noise: add the noise term. It is exactly 0 in float32 wherever :math:`s^2 \le 0.1`.
        precondition: multiply by trust and gate; without it the step is the momentum.
        formulation: ``"released"`` or ``"algorithm1"``.
        noise_std: :math:`\sigma` of ``"algorithm1"``.
        weight_decay: coupled (L2) by default: added to the gradient before the moments.
        decoupled_weight_decay: shrink the weights by ``1 - lr * weight_decay`` instead.
        maximize: ascend.
        seed: names the random stream.

    Returns:
        A transformation whose updates are to be added to the parameters (`optax.apply_updates`), in the dtypes
        of the gradients. ``update`` needs the parameters where there is weight decay.

    Example:
        >>> import jax.numpy as jnp
        >>> p, optimizer = jnp.ones(2), genie(0.1, noise=False, dropout=0.0)
        >>> state = optimizer.init(p)
        >>> for g in ([1.0, 1.0], [1.0, -1.0], [1.0, 1.0]):  # a steady and a contradictory gradient
        ...     updates, state = optimizer.update(jnp.array(g), state)
        ...     p = optax.apply_updates(p, updates)
        >>> print(p.round(4))
        [0.7    0.8958]
    """
    options: dict[str, Any] = {"lr": lr, "beta": beta, "dropout": dropout, "noise": noise}
    options |= {"precondition": precondition, "formulation": formulation, "noise_std": noise_std}
    options |= {"weight_decay": weight_decay, "decoupled_weight_decay": decoupled_weight_decay}
    options |= {"maximize": maximize, "seed": seed}
    _check(options)
    rule = _rule_of(options)
    update_one = jax.jit(partial(update_leaf, rule))  # traced once for all leaves of a shape

    def init(params: Any) -> GenieState:
        jax.tree.map(_check_parameter, params)
        zeros = jax.tree.map(jnp.zeros_like, params), jax.tree.map(jnp.zeros_like, params)
        return GenieState(jnp.zeros((), jnp.int32), *zeros)

    def update(updates: Any, state: GenieState, params: Any = None) -> tuple[Any, GenieState]:
        if params is None and (rule.l2 or rule.shrink):
            raise check.InputError(
                "GENIE got weight_decay and no parameters to decay; call update(gradients, state, params)."
            )
        leaves, tree = _flattened(updates, state, params)
        step = optax.safe_increment(state.count)
        scalars, threshold = _scalars_of(options, state.count, step), _random.leaf_threshold(options["dropout"])
        keys = _random.leaf_keys(options["seed"], np.arange(len(leaves))[:, None], step)
        moved = _update_leaves(update_one, leaves, scalars, keys, threshold)
        new, mu, nu = ([leaf[i] for leaf in moved] for i in range(3))
        return tree.unflatten(new), GenieState(step, tree.unflatten(mu), tree.unflatten(nu))

    return optax.GradientTransformation(init, update)


def _flattened(updates: Any, state: GenieState, params: Any) -> tuple[list[Leaf], Any]:
    """The leaves of the trees, and their structure."""
    tree: Any
    grads, tree = jax.tree.flatten(updates)
    weights = [None] * len(grads) if params is None else tree.flatten_up_to(params)
    moments = (tree.flatten_up_to(state.mu), tree.flatten_up_to(state.nu))
    return [Leaf(*parts) for parts in zip(weights, grads, *moments, strict=True)], tree


def _is_array(value: Any) -> bool:
    return isinstance(value, jax.Array)


def _check(options: dict[str, Any]) -> None:
    """Raise, in a whole sentence, for the first option that cannot be; the values of arrays are not read."""
    lr = options["lr"]
    if _is_array(lr) and lr.size != 1:
        raise OptionError(f"got an array lr with {lr.size} elements; expected one element.")
    if options["formulation"] == "theorem":
        raise OptionError(
            "got formulation='theorem', which genie_dg.optax does not have; expected released or algorithm1, "
            "or use genie_dg.GENIE in torch."
        )
    numbers = {k: v for k, v in options.items() if not _is_array(v) and not (k == "lr" and callable(v))}
    check_options(numbers, _SWITCHES, ("released", "algorithm1"))


def _check_parameter(p: Any) -> None:
    dtype = jnp.asarray(p).dtype
    if jnp.issubdtype(dtype, jnp.complexfloating):
        raise OptionError(
            f"got a complex parameter ({dtype}); expected real parameters, "
            "so keep real and imaginary part apart."
        )
    if not jnp.issubdtype(dtype, jnp.floating):
        raise OptionError(f"got a parameter of {dtype}; expected floating-point parameters.")


def _rule_of(options: dict[str, Any]) -> UpdateRule:
    """The switches. What is an array may have any value, so its part is switched on."""
    decay = _is_array(options["weight_decay"]) or options["weight_decay"] != 0
    return UpdateRule.of(options, mask=_is_array(options["dropout"]) or options["dropout"] > 0, decay=decay)


def _scalars_of(options: dict[str, Any], count: Array, step: Array) -> StepNumbers:
    """The numbers of one step. Schedules are called with the steps so far, as everywhere in optax."""
    lr = options["lr"](count) if callable(options["lr"]) else options["lr"]
    beta, dropout, decay, std = (
        _number(options[name]) for name in ("beta", "dropout", "weight_decay", "noise_std")
    )
    lr = _number(lr)
    size = lr / (1 - dropout) if options["formulation"] == "released" else lr
    return StepNumbers(*averages_at(beta, step), size, lr * decay, decay, std)


def _number(value: Any) -> Number:
    return value.reshape(()).astype(jnp.result_type(float)) if _is_array(value) else float(value)


def _update_leaves(
    update: Callable[..., Moved], leaves: list[Leaf], s: StepNumbers, keys: Array, threshold: Array
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
        groups.setdefault(alike if leaf.g.size < SMALL_ARRAY else i, []).append(i)
    return list(groups.values())


def _stacked(
    update: Callable[..., Moved], leaves: dict[int, Leaf], s: StepNumbers, keys: Array, threshold: Array
) -> dict[int, Moved]:
    """The update of leaves that are alike, as one array with a new first dimension."""
    rows = keys[jnp.asarray(list(leaves))]
    together: Leaf = jax.tree.map(lambda *parts: jnp.stack(parts), *leaves.values())
    result = jax.vmap(update, in_axes=(0, None, 0, None))(together, s, rows, threshold)
    return {i: (result[0][row], result[1][row], result[2][row]) for row, i in enumerate(leaves)}
