"""Time and memory of one optimizer step, as ratios to peers measured in the same run.

    python benchmarks/step_time.py [--rounds 12] [--shapes resnet50,vit_b_16,mlp] [--gradients 1e-3]
    python benchmarks/step_time.py --goals [--threads 1,2]

Every round times one step of each optimizer in turn, so that a slow moment of the machine hits all of
them; the medians over rounds are compared. Gradients are fresh random numbers of standard deviation
``--gradients``, moved a little before every step: at 1e-3 (the size found in ordinary networks) the
noise term is zero for every entry, at 1.0 it is live for nearly all. Memory is the peak of torch's own CPU
allocations during a step, beyond what was allocated before it, as a share of the parameters' size.

``--goals`` times the native path alone against fused Adam and prints each ratio beside its goal: the median
over rounds of the ratio within a round, so that a busy machine hits both. It also times the first step with an
empty cache, the C compiler included. The native path's own tables (about 0.1 % of a ResNet-50) are not torch's
and not in the memory column.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import tempfile
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
        "GENIE native": GENIE(new()).step,
        "GENIE native, precondition only": GENIE(new(), **plain).step,
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


GOALS = {  # (setting, shapes): highest ratio to fused Adam at one thread and at two
    ("full", "resnet50"): (1.1, 1.2),
    ("full", "vit_b_16"): (1.1, 1.2),
    ("precondition only", "resnet50"): (1.05, 1.15),
    ("precondition only", "vit_b_16"): (1.05, 1.15),
    ("full", "mlp"): (2.0, 2.0),
    ("live noise", "resnet50"): (4.0, 4.0),
    ("scale_free", "resnet50"): (math.inf, math.inf),  # no goal
}
OPTIONS: dict[str, dict[str, object]] = {
    "precondition only": {"noise": False, "dropout": 0.0},
    "scale_free": {"scale_free": True},
}


def first_step() -> float:
    """Seconds of a first step of one small tensor when nothing has been built; importing is not counted."""
    code = (
        "import time, torch; from genie_dg import GENIE\n"
        "p = torch.nn.Parameter(torch.ones(9)); p.grad = torch.ones(9); optimizer = GENIE([p], foreach=True)\n"
        "optimizer.step(); optimizer = GENIE([p]); start = time.perf_counter(); optimizer.step()\n"
        "print(time.perf_counter() - start)"
    )
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "XDG_CACHE_HOME": cache}
        found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True)
    return float(found.stdout)


def one(step: Callable[[], object], scale: float, repeat: int) -> float:
    refresh(step, scale)
    start = time.perf_counter()
    for _ in range(repeat):
        step()
    return (time.perf_counter() - start) / repeat


def goals(threads: list[int], rounds: int, settings: list[str]) -> None:
    print(f"first step, cache empty: {first_step():.2f} s (goal 1)")
    print(f"{'':32}{'threads':>9}{'Adam ms':>9}{'GENIE ms':>10}{'ratio':>8}{'goal':>7}{'extra memory':>14}")
    for (setting, name), limits in GOALS.items():
        if setting not in settings:
            continue
        sizes, scale = shapes(name), 1.0 if setting == "live noise" else 1e-3
        options = OPTIONS.get(setting, {})
        adam = torch.optim.Adam(parameters(sizes, scale), fused=True).step
        genie = GENIE(parameters(sizes, scale), **options).step
        repeat = 20 if name == "mlp" else 1
        for count in threads:
            torch.set_num_threads(count)
            pairs = [(one(adam, scale, repeat), one(genie, scale, repeat)) for _ in range(rounds + 2)][2:]
            ratio = statistics.median(b / a for a, b in pairs)
            peer, own = (statistics.median(side) * 1e3 for side in zip(*pairs, strict=True))
            extra = peak_extra(genie) / (4 * sum(torch.Size(s).numel() for s in sizes))
            goal = limits[min(count, 2) - 1]
            label = f"{setting}, {name}"
            print(f"{label:32}{count:9}{peer:9.2f}{own:10.2f}{ratio:8.2f}{goal:7.2f}{extra:14.1%}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--shapes", default="resnet50,vit_b_16,mlp")
    parser.add_argument("--gradients", default="1e-3")
    parser.add_argument("--goals", action="store_true", help="the native path against its goals")
    parser.add_argument("--threads", default="1,2", help="for --goals")
    every = list(dict.fromkeys(setting for setting, _ in GOALS))
    parser.add_argument("--settings", nargs="+", default=every, choices=every, help="for --goals")
    options = parser.parse_args()
    if options.goals:
        load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
        print(f"torch {torch.__version__}, float32, CPU, {load}")
        goals([int(n) for n in options.threads.split(",")], options.rounds, options.settings)
    else:
        table(options.shapes.split(","), [float(x) for x in options.gradients.split(",")], options.rounds)


def table(names: list[str], scales: list[float], rounds: int) -> None:
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, float32, CPU")
    for scale in scales:
        for name in names:
            sizes = shapes(name)
            bytes_ = 4 * sum(torch.Size(s).numel() for s in sizes)
            steps = contenders(sizes, scale)
            times = measure(steps, scale, rounds)
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
