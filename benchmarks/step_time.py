"""Time and memory of one optimizer step, as ratios to peers measured in the same run.

    python benchmarks/step_time.py [--rounds 12] [--shapes resnet50,vit_b_16,mlp] [--gradients 1e-3]

Every round times one step of each optimizer in turn, so that a slow moment of the machine hits all of
them; the medians over rounds are compared. Gradients are fresh random numbers of standard deviation
``--gradients``, moved a little before every step: at 1e-3 (the size found in ordinary networks) the
noise term is zero for every entry, at 1.0 it is live for nearly all. Memory is the peak of torch's own CPU
allocations during a step, beyond what was allocated before it, as a share of the parameters' size.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from genie_dg import GENIE

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.oracle.listing import Listing

SLOW = ("GENIE loop", "listing")  # timed in every third round
MLP = [(256, 784), (256,), (256, 256), (256,), (10, 256), (10,)]


def shapes(name: str) -> list[tuple[int, ...]]:
    if name == "mlp":
        return MLP
    import torchvision

    with torch.device("meta"):
        return [tuple(p.shape) for p in getattr(torchvision.models, name)().parameters()]


def parameters(sizes: list[tuple[int, ...]], scale: float) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    params = [torch.nn.Parameter(torch.randn(s, generator=generator) * 0.05) for s in sizes]
    for p in params:
        p.grad = torch.randn(p.shape, generator=generator) * scale
    return params


def contenders(sizes: list[tuple[int, ...]], scale: float) -> dict[str, Callable[[], object]]:
    def new() -> list[Tensor]:
        return parameters(sizes, scale)

    plain = {"noise": False, "dropout": 0.0}
    return {
        "Adam fused": torch.optim.Adam(new(), fused=True).step,
        "Adam foreach": torch.optim.Adam(new(), foreach=True).step,
        "GENIE fused": GENIE(new(), fused=True).step,
        "GENIE fused, precondition only": GENIE(new(), fused=True, **plain).step,
        "GENIE foreach": GENIE(new(), foreach=True).step,
        "GENIE loop": GENIE(new(), foreach=False).step,
        "listing": Listing(new()).step,
    }


def refresh(step: Callable[[], object], scale: float) -> None:
    """Move the gradients at random and keep them bounded, so that the variance is alive."""
    owner = getattr(step, "__self__", None) or step.__wrapped__.__self__  # type: ignore[attr-defined]
    params = owner.params if isinstance(owner, Listing) else owner.param_groups[0]["params"]
    for p in params:
        p.grad.add_(torch.empty_like(p).uniform_(-scale, scale)).clamp_(-3 * scale, 3 * scale)


def measure(steps: dict[str, Callable[[], object]], scale: float, rounds: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in steps}
    for name, step in steps.items():
        refresh(step, scale)
        step()
        refresh(step, scale)
        step()
        print(f"  {name} is warm", file=sys.stderr)
    for turn in range(rounds):
        for name, step in steps.items():
            if name in SLOW and turn % 3:
                continue
            refresh(step, scale)
            repeat = 20 if statistics.fmean(times[name] or [1.0]) < 0.002 else 1
            start = time.perf_counter()
            for _ in range(repeat):
                step()
            times[name].append((time.perf_counter() - start) / repeat)
    return {name: statistics.median(found) for name, found in times.items()}


def peak_extra(step: Callable[[], object]) -> int:
    """Bytes that torch's CPU allocator held at the worst moment of a step, beyond those before it."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as found:
        step()
    moments = [e for e in found.profiler.kineto_results.events() if e.name() == "[memory]"]  # type: ignore
    level = peak = 0
    for event in sorted(moments, key=lambda e: e.start_ns()):
        level += event.nbytes()
        peak = max(peak, level)
    return peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--shapes", default="resnet50,vit_b_16,mlp")
    parser.add_argument("--gradients", default="1e-3")
    options = parser.parse_args()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, float32, CPU")
    for scale in map(float, options.gradients.split(",")):
        for name in options.shapes.split(","):
            sizes = shapes(name)
            bytes_ = 4 * sum(torch.Size(s).numel() for s in sizes)
            steps = contenders(sizes, scale)
            times = measure(steps, scale, options.rounds)
            print(f"\n{name}: {len(sizes)} tensors, {bytes_ / 4e6:.2f} M parameters, gradients {scale:g}")
            columns = ("ms", "/ Adam fused", "/ Adam foreach", "listing / it", "extra memory")
            print(f"{'':32}" + "".join(f"{c:>15}" for c in columns))
            for label, seconds in times.items():
                extra = peak_extra(steps[label]) / bytes_
                print(
                    f"{label:32}{seconds * 1e3:15.3f}{seconds / times['Adam fused']:15.2f}"
                    f"{seconds / times['Adam foreach']:15.2f}{times['listing'] / seconds:15.1f}{extra:15.1%}"
                )


if __name__ == "__main__":
    main()
