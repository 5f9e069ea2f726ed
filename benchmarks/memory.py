"""A training step in a process that keeps the memory it frees, against the same step in one that does not.

`genie_dg.runtime.keep_memory` is what workers and ``genie-dg train`` call before they train. Each measure
is taken in a process of its own; the two kinds take turns. Printed are the medians of forward, backward and
Adam's step of EfficientNet-Lite0, their ratio, and the page faults of a step.

    python benchmarks/memory.py --threads 1 2
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time


def measure(threads: int, keep: bool, steps: int, pixels: int) -> dict[str, float]:
    """Median seconds and page faults of a step, in this process."""
    import torch
    from torch.nn.functional import cross_entropy

    from genie_dg.models.classifier import build_network
    from genie_dg.runtime import keep_memory

    if keep and not keep_memory():
        raise SystemExit("This system's C library has no mallopt; there is nothing to measure.")
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    network = build_network("efficientnet_lite0", 7, 3, pixels).to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-4, fused=True)
    images = torch.randn(48, 3, pixels, pixels).to(memory_format=torch.channels_last)
    labels = torch.randint(0, 7, (48,))
    seconds, faults = [], 0
    for step in range(steps + 3):
        before, start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, time.perf_counter()
        optimizer.zero_grad()
        cross_entropy(network(images), labels).backward()
        optimizer.step()
        if step >= 3:
            seconds.append(time.perf_counter() - start)
            faults += resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    return {"seconds": statistics.median(seconds), "faults": faults / steps}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5, help="processes of each kind (default: 5)")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--pixels", type=int, default=64)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one is not None:
        threads, keep = json.loads(given.one)
        print(json.dumps(measure(threads, keep, given.steps, given.pixels)))
        return
    for threads in given.threads:
        rows: dict[bool, list[dict[str, float]]] = {False: [], True: []}
        for _ in range(given.rounds):
            for keep, taken in rows.items():
                words = [sys.executable, __file__, "--one", json.dumps([threads, keep])]
                words += ["--steps", str(given.steps), "--pixels", str(given.pixels)]
                taken.append(json.loads(subprocess.run(words, check=True, capture_output=True).stdout))
        medians = {keep: statistics.median(t["seconds"] for t in taken) for keep, taken in rows.items()}
        faults = {keep: statistics.median(t["faults"] for t in taken) for keep, taken in rows.items()}
        ratio = medians[True] / medians[False]
        print(
            f"{threads} threads: {1e3 * medians[False]:.0f} ms as it is ({faults[False]:,.0f} page faults), "
            f"{1e3 * medians[True]:.0f} ms kept ({faults[True]:,.0f}), ratio {ratio:.2f}"
        )


if __name__ == "__main__":
    main()
