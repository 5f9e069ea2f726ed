"""Time of one whole training step (forward, backward, update) with each optimizer, as a ratio to Adam's.

ERM on three domains; every optimizer steps the same network on the same random images. Rounds go through all
optimizers in turn, so that a slow minute of the machine hits all of them; the table shows medians.

    python benchmarks/train_step.py                        # ResNet-18 and ResNet-50, 3 x 8 images of 96 pixels
    python benchmarks/train_step.py --networks resnet18 --rounds 9 --batch 32 --pixels 224
    python benchmarks/train_step.py --networks efficientnet_lite0 --batch 16 --pixels 64 --threads 1 \\
        --plugin studies/pacs/rows.py --csv studies/pacs/step_times.csv --optimizers sgd genie sam-adam
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import torch

from genie_dg._types import DomainBatch, StepContext
from genie_dg.algorithms.erm import ERM
from genie_dg.bench.request import load_plugin
from genie_dg.bench.step import take_step
from genie_dg.models.classifier import build_network
from genie_dg.optim.registry import OPTIMIZERS, build_optimizer
from genie_dg.runtime import keep_memory


def batch_of(size: int, pixels: int, classes: int) -> DomainBatch:
    g = torch.Generator().manual_seed(0)
    images = tuple(torch.randn(size, 3, pixels, pixels, generator=g) for _ in range(3))
    labels = tuple(torch.randint(classes, (size,), generator=g) for _ in range(3))
    return DomainBatch(images, labels)


def measure(network: str, names: list[str], rounds: int, size: int, pixels: int) -> dict[str, list[float]]:
    """Seconds of each step after one step to warm up, by optimizer."""
    algorithm = ERM(build_network(network, 7, 3, pixels, freeze_statistics=True), 3)
    algorithm.train()
    start = {name: value.clone() for name, value in algorithm.state_dict().items()}
    batch, seconds = batch_of(size, pixels, 7), {name: [] for name in names}
    optimizers = {}
    for turn in range(rounds + 1):
        for name in names:
            algorithm.load_state_dict(start)
            if name not in optimizers:
                optimizers[name] = build_optimizer(name, algorithm.roles()["main"].groups)
            context = StepContext(turn, 0, OPTIMIZERS[name].create_graph)
            began = time.perf_counter()
            take_step(algorithm, {"main": optimizers[name]}, batch, context)
            if turn:
                seconds[name].append(time.perf_counter() - began)
        print(f"\r{network}: round {turn} of {rounds}", end="", flush=True)
    print()
    return seconds


def table(seconds: dict[str, list[float]]) -> str:
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    lines = [
        "| optimizer | passes | s a step | ratio to Adam | lowest to highest ratio |",
        "|---|---|---|---|---|",
    ]
    for name, value in sorted(medians.items(), key=lambda item: item[1]):
        ratios = [a / b for a, b in zip(seconds[name], seconds["adam"], strict=True)]
        lines.append(
            f"| {name} | {OPTIMIZERS[name].passes} | {value:.3f} | {value / medians['adam']:.2f} | "
            f"{min(ratios):.2f} to {max(ratios):.2f} |"
        )
    return "\n".join(lines)


def csv_of(seconds: dict[str, list[float]]) -> str:
    """A line for each step: optimizer, round, seconds."""
    lines = [f"{name},{k},{s:.4f}" for name, times in seconds.items() for k, s in enumerate(times)]
    return "\n".join(["optimizer,round,seconds", *lines]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=["resnet18", "resnet50"])
    parser.add_argument("--optimizers", nargs="+", help="(default: all)")
    parser.add_argument("--plugin", type=Path, help="a file that registers more optimizers")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--csv", type=Path, help="write the seconds of the last network's steps to this file")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=8, help="images of each of three domains")
    parser.add_argument("--pixels", type=int, default=96)
    given = parser.parse_args()
    if given.plugin is not None:
        load_plugin(given.plugin)
    keep_memory()  # as processes that train do
    torch.set_num_threads(given.threads)
    names = list(dict.fromkeys(["adam", *(given.optimizers or OPTIMIZERS)]))
    shape = f"3 x {given.batch} images of {given.pixels} pixels"
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {shape}")
    for network in given.networks:
        seconds = measure(network, names, given.rounds, given.batch, given.pixels)
        print(f"\n{network}, median of {given.rounds}\n\n{table(seconds)}\n")
        if given.csv is not None:
            given.csv.write_text(csv_of(seconds), encoding="utf-8")


if __name__ == "__main__":
    main()
