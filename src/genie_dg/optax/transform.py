"""GENIE as a transformation of gradients: options and state. The update itself is in `_update`."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]
from jax import Array

from genie_dg import check
from genie_dg._options import (
    OptionError,
    UpdateRule,
    check_formulation,
    check_lr,
    check_numbers,
    check_seed,
    check_switches,
)

from . import _random
from ._leaves import Leaf, compiled_update, update_leaves
from ._update import Number, Rule, Scalars, averaging

FORMULATIONS = ("released", "algorithm1")
SWITCHES = ("noise", "precondition", "decoupled_weight_decay", "maximize")


@@STATE@@:
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
    options: dict[str, Any] = {
        "lr": lr,
        "beta": beta,
        "dropout": dropout,
        "noise": noise,
        "precondition": precondition,
        "formulation": formulation,
        "noise_std": noise_std,
        "weight_decay": weight_decay,
        "decoupled_weight_decay": decoupled_weight_decay,
        "maximize": maximize,
        "seed": seed,
    }
    _check(options)
    rule = _rule_of(options)
    update_one = compiled_update(rule)

    def init(params: Any) -> GenieState:
        jax.tree.map(_check_parameter, params)
        zeros = jax.tree.map(jnp.zeros_like, params), jax.tree.map(jnp.zeros_like, params)
        return GenieState(jnp.zeros((), jnp.int32), *zeros)

    def update(updates: Any, state: GenieState, params: Any = None) -> tuple[Any, GenieState]:
        if params is None and (rule.l2 or rule.shrink):
            raise check.InputError(
                "GENIE got weight_decay and no parameters to decay; call update(gradients, state, params)."
            )
        tree: Any
        grads, tree = jax.tree.flatten(updates)
        weights = [None] * len(grads) if params is None else tree.flatten_up_to(params)
        moments = zip(tree.flatten_up_to(state.mu), tree.flatten_up_to(state.nu), strict=True)
        step = optax.safe_increment(state.count)
        scalars, threshold = _scalars_of(options, state.count, step), _random.drop_threshold(options["dropout"])
        keys = _random.stream_key(options["seed"], np.arange(len(grads))[:, None], step)
        leaves = [Leaf(p, g, m, v) for g, p, (m, v) in zip(grads, weights, moments, strict=True)]
        moved = update_leaves(update_one, leaves, scalars, keys, threshold)
        new, mu, nu = ([leaf[i] for leaf in moved] for i in range(3))
        return tree.unflatten(new), GenieState(step, tree.unflatten(mu), tree.unflatten(nu))

    return optax.GradientTransformation(init, update)


def _is_array(value: Any) -> bool:
    return isinstance(value, jax.Array)


def _check(options: dict[str, Any]) -> None:
    """Raise, in a whole sentence, for the first option that cannot be; the values of arrays are not read."""
    lr = options["lr"]
    if _is_array(lr):
        if lr.size != 1:
            raise OptionError(f"got an array lr with {lr.size} elements; expected one element.")
    elif not callable(lr):
        check_lr(lr)
    check_numbers({name: value for name, value in options.items() if not _is_array(value)})
    if options["formulation"] == "theorem":
        raise OptionError(
            "got formulation='theorem', which genie_dg.optax does not have; expected released or algorithm1, "
            "or use genie_dg.GENIE in torch."
        )
    check_formulation(options["formulation"], FORMULATIONS)
    if not _is_array(options["seed"]):
        check_seed(options["seed"])
    check_switches(options, SWITCHES)


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


def _scalars_of(options: dict[str, Any], count: Array, step: Array) -> Scalars:
    """The numbers of one step. Schedules are called with the steps so far, as everywhere in optax."""
    lr = options["lr"](count) if callable(options["lr"]) else options["lr"]
    beta, dropout, decay, std = (
        _number(options[name]) for name in ("beta", "dropout", "weight_decay", "noise_std")
    )
    lr = _number(lr)
    size = lr / (1 - dropout) if options["formulation"] == "released" else lr
    return Scalars(*averaging(beta, step), size, lr * decay, decay, std)


def _number(value: Any) -> Number:
    return value.reshape(()).astype(jnp.result_type(float)) if _is_array(value) else float(value)
