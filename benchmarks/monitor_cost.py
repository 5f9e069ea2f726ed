"""What measuring costs: the GSNR of every parameter against a plain backward over the same samples.

    python benchmarks/monitor_cost.py [--samples 512] [--pixels 64,224] [--rounds 3] [--memory 64,256,512]

The peer is ordinary training code: forward and backward in batches of 32, nothing else. Both are timed in turn
in
every round, and the medians are compared. "Not fast" is the same instrument with torch's own rule for
convolutions
under vmap, timed on fewer samples. Memory is the highest resident size of a fresh process that measures N
samples, less its size before measuring; the samples themselves are made beforehand.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torchvision
from torch import Tensor, nn
from torch.nn import functional as F

from genie_dg.diagnostics import gradient_moments, gsnr, per_sample


def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y)


def case(samples: int, pixels: int) -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    model = torchvision.models.resnet18(num_classes=7).eval()
    return model, torch.randn(samples, 3, pixels, pixels), torch.randint(0, 7, (samples,))


def plain_backward(model: nn.Module, x: Tensor, y: Tensor) -> None:
    for start in range(0, len(x), 32):
        model.zero_grad()
        loss(model, x[start : start + 32], y[start : start + 32]).backward()


def measure(model: nn.Module, x: Tensor, y: Tensor) -> None:
    gsnr(gradient_moments(model, loss, (x, y))).overall()


def measure_slowly(model: nn.Module, x: Tensor, y: Tensor) -> None:
    fast, per_sample.fast_convolutions = per_sample.fast_convolutions, contextlib.nullcontext
    try:
        measure(model, x, y)
    finally:
        per_sample.fast_convolutions = fast


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def compare(samples: int, pixels: int, rounds: int) -> None:
    model, x, y = case(samples, pixels)
    measure(model, x[:32], y[:32])  # warm up
    times: dict[str, list[float]] = {"backward": [], "gsnr": []}
    for _ in range(rounds):
        times["backward"].append(seconds(lambda: plain_backward(model, x, y)))
        times["gsnr"].append(seconds(lambda: measure(model, x, y)))
    backward, measured = (statistics.median(times[k]) for k in ("backward", "gsnr"))
    few = min(64, samples)
    slow = seconds(lambda: measure_slowly(model, x[:few], y[:few])) * samples / few
    print(
        f"{pixels:4d} px, {samples} samples: backward {backward:6.1f} s, GSNR {measured:6.1f} s, "
        f"ratio {measured / backward:.2f} (not fast: {slow / backward:.1f})",
        flush=True,
    )


def resident(what: str) -> float:
    """Megabytes of this process now (VmRSS) or at most since the mark was reset (VmHWM); Linux only."""
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{what}:")[1].split()[0]) / 1024


def peak_of(samples: int, pixels: int) -> float:
    """Megabytes that measuring adds, in this process."""
    model, x, y = case(samples, pixels)
    measure(model, x[:4], y[:4])  # libraries are loaded and set up
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    measure(model, x, y)
    return resident("VmHWM") - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=512)
    parser.add_argument("--pixels", default="64,224")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--memory", default="64,256,512", help="numbers of samples whose peak memory is measured"
    )
    parser.add_argument("--peak", nargs=2, type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peak:
        print(peak_of(*args.peak))
        return
    size = sum(p.numel() for p in torchvision.models.resnet18(num_classes=7).parameters())
    threads = torch.get_num_threads()
    print(
        f"ResNet-18 ({size / 1e6:.1f} M parameters), {threads} threads, torch {torch.__version__}", flush=True
    )
    for pixels in (int(p) for p in args.pixels.split(",")):
        compare(args.samples, pixels, args.rounds)
    for samples in args.memory.split(",") if args.memory else []:
        command = [sys.executable, __file__, "--peak", samples, args.pixels.split(",")[0]]
        peak = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1]
        print(f"peak memory of measuring {samples:>4} samples: {float(peak):6.0f} MB", flush=True)


if __name__ == "__main__":
    main()
