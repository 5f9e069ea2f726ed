"""Arrays over several devices. XLA takes their number when it starts, so this runs in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

CODE = """
import jax, jax.numpy as jnp, numpy as np, optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from genie_dg.optax import genie

assert len(jax.devices()) == 4
mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("x", "y"))
random = np.random.default_rng(0)
params = {"w": jnp.asarray(random.normal(size=(64, 96)), jnp.float32), "b": jnp.ones(8), "n": jnp.ones(())}
places = {"w": P("x", "y"), "b": P("y"), "n": P()}
places = {name: NamedSharding(mesh, place) for name, place in places.items()}
optimizer = genie(0.1)

@jax.jit
def step(params, state, grads):
    updates, state = optimizer.update(grads, state, params)
    return optax.apply_updates(params, updates), state

def run(params, scale, place):
    random, state = np.random.default_rng(1), optimizer.init(params)
    for _ in range(4):
        new = {name: random.normal(scale, scale, params[name].shape) for name in sorted(params)}
        grads = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), new)
        params, state = step(params, state, jax.device_put(grads, place) if place else grads)
    return params, state

for scale in (1e-3, 1.0):
    alone, _ = run(params, scale, None)
    over, state = run(jax.device_put(params, places), scale, places)
    assert over["w"].sharding == places["w"], over["w"].sharding
    assert state.mu["w"].sharding == places["w"], state.mu["w"].sharding
    for name in params:
        np.testing.assert_allclose(over[name], alone[name], rtol=1e-6, atol=1e-6)
text = step.lower(over, state, over).compile().as_text()
assert "all-gather" not in text and "all-to-all" not in text and "collective-permute" not in text
assert "all-reduce" in text  # the sums of kappa
print("the same")
"""


def test_four_devices_do_the_steps_of_one() -> None:
    """And no element is sent to another device: the only communication is sums and maxima."""
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    done = subprocess.run(
        [sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.stdout.strip() == "the same", done.stderr
