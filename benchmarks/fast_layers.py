"""EfficientNet-Lite0 with its fast blocks and with torch's layers: forward and backward, and evaluation.

    python benchmarks/fast_layers.py

Both in turn in one process, 48 pictures of 64 pixels, channels last, fixed statistics, medians; first with
memory as the C library gives it back to the system, then as training keeps it
(`genie_dg.runtime.keep_memory`). Each number of threads is a process of its own. The optimizer's step
is not part of it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median

import torch
from torch.nn import functional as F

from genie_dg.models import _fast_layers
from genie_dg.models.classifier import build_network
from genie_dg.runtime import keep_memory

LIBRARY = _fast_layers.layer_library


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pixels", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=0, help="measure with so many, in this process")
    given = parser.parse_args()
    if LIBRARY() is None:
        raise SystemExit("There is no C compiler, so there is nothing to compare; install gcc or clang.")
    if given.threads:
        measure(given.threads, given.pixels, given.rounds)
        return
    for threads in (1, 2):
        command = [
            sys.executable,
            __file__,
            "--threads",
            threads,
            "--pixels",
            given.pixels,
            "--rounds",
            given.rounds,
        ]
        subprocess.run([str(word) for word in command], check=True)


def measure(threads: int, pixels: int, rounds: int) -> None:
    """The rows of one number of threads."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    network = build_network("efficientnet_lite0", 7, 3, pixels, pretrained=True)
    network.to(memory_format=torch.channels_last).eval()
    x = torch.randn(48, 3, pixels, pixels).contiguous(memory_format=torch.channels_last)
    y = torch.randint(0, 7, (48,))

    def train() -> None:
        network.zero_grad(set_to_none=True)
        F.cross_entropy(network.head(network.features(x)), y).backward()

    def evaluate() -> None:
        with torch.inference_mode():
            network.head(network.features(x))

    before: dict[str, float] = {}
    for memory in ("given back", "kept"):
        if memory == "kept" and not keep_memory():
            raise SystemExit("This C library cannot be told to keep memory.")
        for name, work in (("forward and backward", train), ("evaluation", evaluate)):
            fast, plain = in_turn(work, rounds)
            first = before.setdefault(name, plain)
            print(
                f"{threads} threads, memory {memory:10}, {name:20}: {fast:.3f} s, torch {plain:.3f} s, "
                f"ratio {fast / plain:.2f}, to torch with memory given back {fast / first:.2f}",
                flush=True,
            )


def in_turn(work: Callable[[], None], rounds: int) -> tuple[float, float]:
    """Median seconds with the fast blocks and with torch's own layers."""
    seconds: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(rounds + 2):
        for fast, times in seconds.items():
            _fast_layers.layer_library = LIBRARY if fast else lambda: None  # type: ignore[assignment]
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
    _fast_layers.layer_library = LIBRARY
    return median(seconds[True][2:]), median(seconds[False][2:])


if __name__ == "__main__":
    main()
