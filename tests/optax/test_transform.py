"""The transformation against golden trajectories and the torch optimizer, and in what optax builds of it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

from genie_dg import GENIE
from genie_dg.optax import _random, genie
from tests.optim.test_golden import VARIANTS

Tree = dict[str, Any]


def run(transformation: Any, params: Any, gradients: list[Any]) -> tuple[Any, Any]:
    """Weights and state after jitted steps."""

    @jax.jit
    def step(params: Any, state: Any, grads: Any) -> Any:
        updates, state = transformation.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    state = transformation.init(params)
    for grads in gradients:
        params, state = step(params, state, grads)
    return params, state


def run_torch(params: Any, gradients: list[Any], **options: Any) -> list[np.ndarray]:
    """The torch optimizer's weights, of the leaves in JAX's order."""
    weights = [torch.nn.Parameter(torch.tensor(np.asarray(leaf))) for leaf in jax.tree.leaves(params)]
    optimizer = GENIE(weights, foreach=False, **options)
    for grads in gradients:
        for p, g in zip(weights, jax.tree.leaves(grads), strict=True):
            p.grad = torch.tensor(np.asarray(g))
        optimizer.step()
    return [p.detach().numpy() for p in weights]


def same(ours: Any, theirs: Any, tolerance: float) -> None:
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def draw_tree(seed: int, dtype: Any, steps: int, scale: float) -> tuple[Tree, list[Tree]]:
    """A random tree of weights, with an empty leaf and one of no dimensions, and gradients for it."""
    random = np.random.default_rng(seed)
    shapes = [tuple(random.integers(1, 9, random.integers(1, 4))) for _ in range(3)]

    def new(size: float, mean: float = 0.0) -> Tree:
        a, b, c = (jnp.asarray(random.normal(mean, size, s), dtype) for s in shapes)
        number, empty = jnp.asarray(random.normal(mean, size), dtype), jnp.zeros((0, 3), dtype)
        return {"z": [a, (b, number)], "a": {"w": c, "empty": empty}, "none": None}

    return new(1.0), [new(scale, scale / 3) for _ in range(steps)]


@pytest.mark.parametrize("variant", VARIANTS)
def test_golden_trajectory(golden: dict[str, Any], variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random numbers are looked up in the file: the key of a step is its number, a word says step and entry."""
    xi, drop = jnp.asarray(golden["xi"]), jnp.asarray(golden["keep"]) == 0
    monkeypatch.setattr(_random, "leaf_words", lambda shape, key: (key - 1) * 256 + jnp.arange(shape[0]))
    monkeypatch.setattr(_random, "leaf_normal", lambda word: xi[word // 256, word % 256])
    monkeypatch.setattr(_random, "dropped", lambda word, threshold: drop[word // 256, word % 256])
    monkeypatch.setattr(_random, "leaf_keys", lambda seed, number, step: step[None])
    options = {"dropout": golden["p"], **VARIANTS[variant]}
    optimizer = genie(
        golden["lr"],
        beta=golden["beta"],
        noise_std=golden["sigma"],
        formulation=variant.split("/")[0],
        **options,
    )
    theta = jnp.asarray(golden["theta0"])
    state = optimizer.init(theta)
    update = jax.jit(optimizer.update)
    for gradient, expected in zip(golden["grads"], golden["theta"][variant], strict=True):
        updates, state = update(jnp.asarray(gradient), state, theta)
        theta = optax.apply_updates(theta, updates)
        np.testing.assert_allclose(theta, expected, rtol=1e-10, atol=1e-10)


OPTIONS: list[dict[str, Any]] = [
    {},
    {"formulation": "algorithm1"},
    {"weight_decay": 0.1, "dropout": 0.0},
    {"weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True},
    {"precondition": False, "beta": 0.0},
    {"noise": False, "beta": 0.999, "seed": -(2**40)},
]


def compare(tree: int, dtype: Any, steps: int) -> None:
    """One tree against torch. Normal numbers are of float32 in both, so the noise agrees to its rounding."""
    options = {"lr": 0.1, "seed": tree, **OPTIONS[tree % len(OPTIONS)]}
    scale = 1e-2 if tree % 4 < 2 else 1.0  # without and with live noise
    params, gradients = draw_tree(tree, dtype, steps, scale)
    noisy = scale == 1.0 and options.get("noise", True)
    tolerance = 1e-5 if dtype == jnp.float32 else 1e-6 if noisy else 1e-12
    ours, _ = run(genie(**options), params, gradients)
    same(ours, run_torch(params, gradients, **options), tolerance)


@pytest.mark.parametrize(("tree", "dtype"), [(0, "float64"), (2, "float64"), (3, "float32")])
def test_thirty_steps_with_torch(tree: int, dtype: str) -> None:
    compare(tree, jnp.dtype(dtype), 30)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:GENIE. at step 50 no matrix")  # gradients of 1e-2 in Algorithm 1
@pytest.mark.parametrize("tree", range(20))
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_hundred_steps_with_torch(tree: int, dtype: str) -> None:
    compare(tree, jnp.dtype(dtype), 100)


def test_hundred_steps_without_64_bits() -> None:
    """The scalars are then of float32, for which a decay near 1 is the hardest."""
    jax.config.update("jax_enable_x64", False)
    params, gradients = draw_tree(0, jnp.float32, 100, 1e-2)
    ours, _ = run(genie(0.1, beta=0.999), params, gradients)
    same(ours, run_torch(params, gradients, lr=0.1, beta=0.999), 1e-5)


@pytest.mark.parametrize("shape", [(70, 130), (20, 512)], ids=["odd", "whole rows"])
@pytest.mark.parametrize("scale", [1e-3, 1.0])
def test_a_large_array_takes_either_branch(scale: float, shape: tuple[int, int]) -> None:
    random = np.random.default_rng(0)
    params = jnp.asarray(random.normal(size=shape), jnp.float32)
    gradients = [jnp.asarray(random.normal(0, scale, shape), jnp.float32) for _ in range(5)]
    ours, _ = run(genie(0.1), params, gradients)
    same(ours, run_torch(params, gradients, lr=0.1), 2e-6)


def test_small_leaves_of_one_shape_keep_their_numbers() -> None:
    """They are computed as one array; the leaf between them and the one of another dtype are not part of it."""
    random = np.random.default_rng(0)
    params = [jnp.asarray(random.normal(size=shape), jnp.float32) for shape in [40, (5, 8), 40, 40]]
    params.append(jnp.ones(40, jnp.float64))
    gradients = [[jnp.asarray(random.normal(size=p.shape), p.dtype) for p in params] for _ in range(3)]
    ours, _ = run(genie(0.1), params, gradients)
    same(ours, run_torch(params, gradients, lr=0.1), 2e-6)


def test_a_step_needs_no_memory_of_its_own() -> None:
    """The update goes straight into the weights, and the moments are overwritten: what makes a step fast."""
    optimizer, params = genie(0.1, noise=False), jnp.ones((64, 128), jnp.float32)

    def step(params: Any, state: Any, grads: Any) -> Any:
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    lowered = jax.jit(step, donate_argnums=(0, 1)).lower(params, optimizer.init(params), params)
    assert lowered.compile().memory_analysis().temp_size_in_bytes < params.nbytes / 8


def test_bfloat16_with_gradients_of_float32() -> None:
    """Computed in float32 and stored in bfloat16; the update has the gradient's dtype."""
    params, grads = jnp.ones(300, jnp.bfloat16), jnp.linspace(-1, 1, 300, dtype=jnp.float32)
    optimizer = genie(0.1)
    updates, state = optimizer.update(grads, optimizer.init(params), params)
    assert updates.dtype == jnp.float32
    assert state.mu.dtype == state.nu.dtype == jnp.bfloat16
    weight = torch.nn.Parameter(torch.ones(300, dtype=torch.bfloat16))
    weight.grad = torch.tensor(np.asarray(grads)).to(torch.bfloat16)
    GENIE([weight], lr=0.1, foreach=False).step()
    new = optax.apply_updates(params, updates)
    np.testing.assert_allclose(new.astype(float), weight.detach().double().numpy(), rtol=2**-7)


def test_one_bad_entry_stays_alone_and_the_largest_gradients_saturate() -> None:
    params = jnp.ones(5000, jnp.float32)
    grads = jnp.linspace(-1, 1, 5000, dtype=jnp.float32).at[7].set(jnp.nan)
    new, _ = run(genie(0.1, dropout=0.0), params, [grads] * 3)
    assert jnp.flatnonzero(~jnp.isfinite(new)).tolist() == [7]
    largest = jnp.finfo(jnp.float32).max
    new, state = run(genie(1.0), params, [jnp.full(5000, largest), jnp.full(5000, -largest)] * 3)
    assert jnp.isfinite(new).all()
    assert jnp.isfinite(state.nu).all()


def test_schedules_and_injected_options() -> None:
    params, gradients = draw_tree(1, jnp.float64, 6, 0.1)
    schedule = optax.linear_schedule(0.2, 0.0, 10)
    plain, _ = run(genie(schedule), params, gradients)
    injected, state = run(optax.inject_hyperparams(genie)(schedule), params, gradients)
    same(plain, injected, 1e-12)
    assert float(state.hyperparams["lr"]) == pytest.approx(0.1)
    weights = [torch.nn.Parameter(torch.tensor(np.asarray(leaf))) for leaf in jax.tree.leaves(params)]
    optimizer = GENIE(weights, lr=0.2, foreach=False)
    for step, grads in enumerate(gradients):
        optimizer.param_groups[0]["lr"] = float(schedule(step))
        for p, g in zip(weights, jax.tree.leaves(grads), strict=True):
            p.grad = torch.tensor(np.asarray(g))
        optimizer.step()
    same(plain, [p.detach().numpy() for p in weights], 1e-7)


def test_chain_and_masked() -> None:
    """What is masked out is not counted: the other leaves have the numbers of a tree of their own."""
    params = {"a": jnp.ones(300), "b": jnp.ones((4, 5)), "c": jnp.ones(3)}
    gradients = [jax.tree.map(lambda p: jnp.linspace(0, 2, p.size).reshape(p.shape), params)] * 3
    masked = optax.masked(genie(0.1), {"a": False, "b": True, "c": True})
    kept = optax.masked(optax.set_to_zero(), {"a": True, "b": False, "c": False})
    chained, _ = run(optax.chain(optax.clip(1.0), masked, kept), params, gradients)
    own = {name: params[name] for name in "bc"}
    alone, _ = run(genie(0.1), own, [{n: jnp.clip(g[n], -1, 1) for n in "bc"} for g in gradients])
    same({name: chained[name] for name in "bc"}, alone, 1e-15)
    assert jnp.array_equal(chained["a"], params["a"])


SENTENCES: dict[str, tuple[dict[str, Any], str]] = {
    "negative lr": ({"lr": -1.0}, "got lr=-1.0; expected a number of at least 0."),
    "lr of two elements": ({"lr": np.ones(2)}, "got an array lr with 2 elements; expected one element."),
    "seed with a fraction": ({"seed": 0.5}, "got seed=0.5; expected a whole number."),
    "noise as a number": ({"noise": 0}, "got noise=0; expected true or false."),
    "formulation misspelt": (
        {"formulation": "release"},
        "got formulation='release'; expected released or algorithm1; did you mean 'released'?",
    ),
    "the theorem": (
        {"formulation": "theorem"},
        "got formulation='theorem', which genie_dg.optax does not have; expected released or algorithm1, "
        "or use genie_dg.GENIE in torch.",
    ),
}


@pytest.mark.parametrize("case", SENTENCES)
def test_bad_options(case: str) -> None:
    options, sentence = SENTENCES[case]
    if isinstance(options.get("lr"), np.ndarray):
        options = {"lr": jnp.asarray(options["lr"])}
    with pytest.raises(ValueError) as caught:
        genie(**options)
    assert str(caught.value) == sentence
    assert isinstance(caught.value, TypeError)


def test_bad_parameters_and_gradients() -> None:
    optimizer = genie(weight_decay=0.1)
    with pytest.raises(ValueError, match="got a parameter of int32; expected floating-point"):
        optimizer.init(jnp.zeros(2, jnp.int32))
    with pytest.raises(ValueError, match="real and imaginary part apart"):
        optimizer.init(jnp.zeros(2, jnp.complex64))
    state = optimizer.init(jnp.zeros(2))
    with pytest.raises(ValueError, match="no parameters to decay"):
        optimizer.update(jnp.zeros(2), state)
    with pytest.raises(ValueError, match=r"gradient of shape \(3,\) for a parameter of shape \(2,\)"):
        optimizer.update(jnp.zeros(3), state, jnp.zeros(2))
