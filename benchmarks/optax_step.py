"""Time of one jitted step of ``genie_dg.optax.genie`` against ``optax.adam``, measured in the same run.

    python benchmarks/optax_step.py [--rounds 15] [--threads 1,2] [--gradients 1e-3,1.0]

The shapes are those of a ResNet-50 as JAX writes them (kernels as height, width, in, out). A step is
``update`` and ``apply_updates`` under one ``jit`` that may overwrite its weights and state. Every round times
one step of each in turn, so that a slow moment of the machine hits both; the ratio is the median over rounds
of the ratio in a round. The second ratio is that of processor time, which others disturb less. XLA takes
its threads when it starts, so each number of threads is a process of its own, bound to that many cores.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

SETTINGS: dict[str, dict[str, Any]] = {
    "full": {},
    "without mask": {"dropout": 0.0},
    "precondition": {"noise": False, "dropout": 0.0},
    "momentum": {"noise": False, "dropout": 0.0, "precondition": False},
}
GOAL = 1.5


def shapes() -> list[tuple[int, ...]]:
    """The weights of a ResNet-50: 161 arrays, 25.6 million numbers."""
    found: list[tuple[int, ...]] = [(7, 7, 3, 64), (64,), (64,)]
    width = 64
    for blocks, inner in ((3, 64), (4, 128), (6, 256), (3, 512)):
        for block in range(blocks):
            convolutions = [(1, 1, width, inner), (3, 3, inner, inner), (1, 1, inner, 4 * inner)]
            convolutions += [(1, 1, width, 4 * inner)] if block == 0 else []
            for kernel in convolutions:
                found += [kernel, kernel[-1:], kernel[-1:]]
            width = 4 * inner
    return [*found, (2048, 1000), (1000,)]


class Contender:
    """A transformation with weights and state of its own."""

    def __init__(self, transformation: Any, scale: float) -> None:
        import jax
        import jax.numpy as jnp
        import numpy as np
        import optax

        random = np.random.default_rng(0)
        self.params = [jnp.asarray(random.normal(0, 0.05, s), jnp.float32) for s in shapes()]
        self.grads = [
            [jnp.asarray(random.normal(0, scale, s), jnp.float32) for s in shapes()] for _ in range(2)
        ]
        self.state = transformation.init(self.params)
        self.turn = 0

        def step(params: Any, state: Any, grads: Any) -> Any:
            updates, state = transformation.update(grads, state, params)
            return optax.apply_updates(params, updates), state

        jitted: Callable[..., Any] = jax.jit(step, donate_argnums=(0, 1))
        start = time.perf_counter()
        self.compiled = jitted.lower(self.params, self.state, self.grads[0]).compile()
        self.compile_seconds = time.perf_counter() - start

    def __call__(self) -> tuple[float, float]:
        """Seconds of one step, by the clock and of processor time."""
        import jax

        self.turn += 1
        start, before = time.perf_counter(), time.process_time()
        self.params, self.state = self.compiled(self.params, self.state, self.grads[self.turn % 2])
        jax.block_until_ready((self.params, self.state))
        return time.perf_counter() - start, time.process_time() - before


def measure(scales: list[float], rounds: int, settings: list[str]) -> None:
    """The rows of one number of threads."""
    import optax

    from genie_dg.optax import genie

    threads = len(os.sched_getaffinity(0))
    for scale in scales:
        for setting in settings:
            adam, own = Contender(optax.adam(1e-3), scale), Contender(genie(0.015, **SETTINGS[setting]), scale)
            pairs = [(adam(), own()) for _ in range(rounds + 3)][3:]
            ratio, processor = (statistics.median(b[i] / a[i] for a, b in pairs) for i in range(2))
            peer, mine = (statistics.median(x for x, _ in side) * 1e3 for side in zip(*pairs, strict=True))
            print(
                f"{setting:14}{scale:10g}{threads:9}{peer:9.1f}{mine:10.1f}{ratio:8.2f}{processor:11.2f}{GOAL:7.2f}"
                f"{adam.compile_seconds:12.1f}{own.compile_seconds:9.1f}{os.getloadavg()[0]:7.1f}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--gradients", default="1e-3,1.0", help="1e-3: no noise is live; 1.0: nearly all of it")
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS), choices=SETTINGS)
    parser.add_argument("--measure", action="store_true", help="measure in this process, bound as it is")
    options = parser.parse_args()
    if options.measure:
        measure([float(x) for x in options.gradients.split(",")], options.rounds, options.settings)
        return
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, float32")
    print(
        f"{'':14}{'gradients':>10}{'threads':>9}{'Adam ms':>9}{'GENIE ms':>10}{'ratio':>8}"
        f"{'processor':>11}{'goal':>7}{'compile s':>12}{'GENIE s':>9}{'load':>7}",
        flush=True,
    )
    cores = sorted(os.sched_getaffinity(0))
    for count in (int(n) for n in options.threads.split(",")):
        command = [sys.executable, __file__, "--measure", "--gradients", options.gradients]
        command += ["--rounds", str(options.rounds), "--settings", *options.settings]
        os.sched_setaffinity(0, cores[:count])
        subprocess.run(command, check=True, env={**os.environ, "XLA_FLAGS": flags(count)})
        os.sched_setaffinity(0, cores)


def flags(threads: int) -> str:
    """XLA's flags for a number of threads."""
    own = f"--xla_cpu_multi_thread_eigen={'true' if threads > 1 else 'false'}"
    return f"{os.environ.get('XLA_FLAGS', '')} {own}".strip()


if __name__ == "__main__":
    main()
