"""The loop's own cost: all of a training step that is not forward, backward and optimizer step.

Trains ResNet-18 on a folder of pictures from a warm cache with the real loop (`genie_dg.bench.train.train`),
and takes the time inside ``optimizer.step(closure)``, which is forward, backward and update, away from the
whole. What is left is reading, augmenting and moving batches, bookkeeping and checks. Evaluating and saving
are timed apart.

    python benchmarks/harness_overhead.py PACS --steps 6
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

import genie_dg.bench.train as loop
from genie_dg.bench.assemble import assemble
from genie_dg.bench.checkpoint import TrainingState
from genie_dg.bench.options import RunOptions
from genie_dg.data.registry import open_data
from genie_dg.runs.config import RunConfig
from genie_dg.runs.record import Record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="<domain>/<class>/<picture>")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--batch", type=int, default=32, help="pictures of each of three domains")
    parser.add_argument("--pixels", type=int, default=224)
    parser.add_argument("--cache", type=Path, help="the folder for decoded pictures (default: a temporary one)")
    given = parser.parse_args()
    data = open_data(given.folder)
    config = RunConfig(
        data.name,
        (0,),
        optimizer="adam",
        backbone="resnet18",
        batch_size=given.batch,
        image_size=given.pixels,
        steps=given.steps + 1,
        checkpoint_every=10**6,
    )
    with tempfile.TemporaryDirectory() as temporary:
        cache = given.cache or Path(temporary) / "cache"
        print("building or opening the cache", flush=True)
        parts = assemble(config, data, RunOptions(cache=str(cache)))
        inside, whole, apart = [0.0], [], [0.0]
        optimizer = parts.optimizers["main"]
        step, evaluate, save = optimizer.step, loop.make_record, TrainingState.save

        def timed(function: Any, account: list[float]) -> Any:
            def called(*args: Any, **more: Any) -> Any:
                began = time.perf_counter()
                try:
                    return function(*args, **more)
                finally:
                    account[0] += time.perf_counter() - began

            return called

        def no_evaluation(*args: Any) -> Record:
            return Record(args[1], 0.0, None, 0.0, (), ())

        optimizer.step = timed(step, inside)  # type: ignore[method-assign]
        loop.make_record, TrainingState.save = no_evaluation, timed(save, apart)  # type: ignore[method-assign]
        marks: list[tuple[float, float, float]] = []
        loop.train(
            parts,
            Path(temporary) / "run",
            lambda done, record: marks.append((time.perf_counter(), inside[0], apart[0])),
        )
        loop.make_record, TrainingState.save = evaluate, save  # type: ignore[method-assign]
        for (t0, i0, a0), (t1, i1, a1) in pairwise(marks):
            whole.append((t1 - t0 - (a1 - a0), i1 - i0))
    shares = [100 * (total - work) / total for total, work in whole]
    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads, 3 x {given.batch} pictures of "
        f"{given.pixels} pixels, {given.steps} steps after the first"
    )
    print(
        f"a step: {statistics.median(t for t, _ in whole):.3f} s, of which forward, backward and update "
        f"{statistics.median(w for _, w in whole):.3f} s"
    )
    print(
        f"the loop's own share: {statistics.median(shares):.1f} % (from {min(shares):.1f} to {max(shares):.1f})"
    )
    print(f"saving a checkpoint: {apart[0] / 2:.2f} s")


if __name__ == "__main__":
    main()
