"""A sweep of 20 small runs with two workers, as a share of the time with one; both start from nothing.

Every run has one thread, as ``genie-dg sweep`` gives it by itself, so that both do the same arithmetic.
Also printed is what ``--dry-run`` announced for either.

    python benchmarks/sweep_workers.py --steps 150
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SWEEP = """\
name = "small"
protocol = "domainbed"
datasets = ["{dataset}"]
algorithms = ["ERM"]
optimizers = ["adam", "genie"]
test_domains = [[0], [5]]
hparams = [0]
trials = 5

[overrides]
steps = {steps}
checkpoint_every = {every}
backbone = "{backbone}"
batch_size = {batch}
"""


def command(*words: str) -> list[str]:
    code = "import sys; from genie_dg.cli.main import main; sys.exit(main())"
    return [sys.executable, "-c", code, *words]


def seconds(file: Path, workers: int) -> tuple[float, str]:
    """Of the sweep, from the command to its end, and the announced time."""
    with tempfile.TemporaryDirectory() as out:
        words = ("sweep", str(file), "--out", out, "--workers", str(workers))
        said = subprocess.run(command(*words, "--dry-run"), capture_output=True, text=True, check=True).stdout
        announced = re.search(r"About (.*?) with", said)
        began = time.perf_counter()
        subprocess.run(command(*words), capture_output=True, check=True)
        return time.perf_counter() - began, announced[1] if announced else "nothing"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="digits", help="one with six domains")
    parser.add_argument("--backbone", default="cnn")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        file = Path(temporary) / "small.toml"
        shape = {"dataset": given.dataset, "backbone": given.backbone, "batch": given.batch}
        file.write_text(SWEEP.format(**shape, steps=given.steps, every=given.steps // 2), encoding="utf-8")
        times: dict[int, list[float]] = {1: [], 2: []}
        for turn in range(given.rounds):
            for workers in times:
                spent, announced = seconds(file, workers)
                times[workers].append(spent)
                print(
                    f"round {turn + 1}, {workers} workers: {spent:.1f} s (announced: {announced})", flush=True
                )
    one, two = (statistics.median(times[workers]) for workers in (1, 2))
    print(f"20 runs: one worker {one:.1f} s, two workers {two:.1f} s, ratio {two / one:.2f}")


if __name__ == "__main__":
    main()
