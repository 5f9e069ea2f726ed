"""EfficientNet-Lite0 with layers in C: forward and backward, and evaluation, as ratios to torch's own layers.

    python benchmarks/fast_layers.py

Both in turn in one process, 48 pictures of 64 pixels, channels last, frozen statistics, one and two threads,
medians. The optimizer's step is not part of it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

import torch
from torch.nn import functional as F

from genie_dg.models import _fast_layers
from genie_dg.models.classifier import build_network

LIBRARY = _fast_layers.library


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pixels", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    if LIBRARY() is None:
        raise SystemExit("There is no C compiler, so there is nothing to compare; install gcc or clang.")
    torch.manual_seed(0)
    network = build_network("efficientnet_lite0", 7, 3, given.pixels, pretrained=True)
    network.to(memory_format=torch.channels_last)
    x = torch.randn(48, 3, given.pixels, given.pixels).contiguous(memory_format=torch.channels_last)
    y = torch.randint(0, 7, (48,))

    def train() -> None:
        network.zero_grad(set_to_none=True)
        F.cross_entropy(network.head(network.features(x)), y).backward()

    def evaluate() -> None:
        with torch.inference_mode():
            network.head(network.features(x))

    for threads in (1, 2):
        torch.set_num_threads(threads)
        for name, work in (("forward and backward", train), ("evaluation", evaluate)):
            fast, plain = in_turn(work, given.rounds)
            print(f"{name}, {threads} threads: {fast:.3f} s, torch {plain:.3f} s, ratio {fast / plain:.2f}")


def in_turn(work: Callable[[], None], rounds: int) -> tuple[float, float]:
    """Median seconds with the layers in C and with torch's own."""
    seconds: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(rounds + 1):
        for fast, times in seconds.items():
            _fast_layers.library = LIBRARY if fast else lambda: None  # type: ignore[assignment]
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
    _fast_layers.library = LIBRARY
    return median(seconds[True][1:]), median(seconds[False][1:])


if __name__ == "__main__":
    main()
