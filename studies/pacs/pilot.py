"""The pilot of the study: rates for each row, and how long Adam needs, on a trial that the study does not use.

    python studies/pacs/pilot.py PACS-FOLDER [--out FOLDER]

It trains with sketch left out, trial 9, and prints validation and test accuracy; what is there is kept.
Test accuracy is shown and not used.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
FIRST = {
    "adam": 3e-4,
    "genie": 5e-3,
    "msvag": 1e-2,
    "genie-scale-free": 1.5e-2,
    "sgd": 1e-2,
    "genie-precondition": 5e-3,
}
"""Where each row's search for its rate begins; it goes on by half a decade until it is worse on both sides.

SAM's two rows take the centres of the optimizers they are built around."""
LONG = 601


def train(pacs: Path, out: Path, optimizer: str, lr: float, steps: int) -> list[dict[str, float]]:
    """One run; its records as validation and test accuracy in percent."""
    folder = out / f"{optimizer}-{lr:g}-{steps}"
    if not list(folder.glob("*/done")):
        words = ["train", "PACS", "--root", pacs.parent, "--test-domain", "sketch", "--trial", 9]
        words += ["--backbone", "efficientnet_lite0", "--pretrained", "--image-size", 64, "--batch-size", 16]
        words += ["--optimizer", optimizer, "--lr", lr, "--steps", steps, "--every", 75, "--keep", "none"]
        words += ["--plugin", HERE / "rows.py", "--cache", out / "cache", "--out", folder, "--quiet"]
        subprocess.run([sys.executable, "-m", "genie_dg", *map(str, words)], check=False)
    records = [json.loads(line) for path in folder.glob("*/records.jsonl") for line in path.open()]
    test = 3  # sketch
    return [
        {
            "step": r["step"],
            "validation": 100 * sum(x for k, x in enumerate(r["out_acc"]) if k != test) / 3,
            "test": 100 * r["in_acc"][test],
            "seconds": r.get("seconds", 0.0),
        }
        for r in records
    ]


def climb(
    name: str, run: Callable[[str, float, int], list[dict[str, float]]]
) -> dict[float, list[dict[str, float]]]:
    """Rates and records of one row: neighbours are tried until the best rate has a worse one on both sides."""
    tried: dict[int, list[dict[str, float]]] = {}

    def validation(place: int) -> float:
        if place not in tried:
            tried[place] = run(name, rate(FIRST[name], place), 151)
        return tried[place][-1]["validation"] if tried[place] and tried[place][-1]["step"] == 150 else -1.0

    best = max((0, 1, -1), key=validation)
    while {best - 1, best + 1} - tried.keys():
        best = max((best, best - 1, best + 1), key=validation)
    return {rate(FIRST[name], place): tried[place] for place in sorted(tried)}


def rate(first: float, place: int) -> float:
    """So many half decades above the first, to two digits.

    >>> rate(3e-4, 1), rate(3e-4, -1)
    (0.00095, 9.5e-05)
    """
    return float(f"{first * 10 ** (place / 2):.1e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pacs", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/pacs-pilot"))
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    run = partial(train, given.pacs, given.out)
    with ThreadPoolExecutor(given.jobs) as pool:
        rows = {name: pool.submit(climb, name, run) for name in FIRST}
        print("| row | lr | validation after 75 and 150 steps | sketch after 150 |\n|---|---|---|---|")
        for name, row in rows.items():
            for lr, records in row.result().items():
                curve = " ".join(f"{r['validation']:.1f}" for r in records if r["step"])
                last = f"{records[-1]['test']:.1f}" if records else "failed"
                print(f"| {name} | {lr:g} | {curve} | {last} |", flush=True)
    tried = rows["adam"].result()
    best = max(tried, key=lambda lr: tried[lr][-1]["validation"])
    curve = ", ".join(f"{r['step']:.0f}: {r['validation']:.1f}" for r in run("adam", best, LONG))
    print(f"\nAdam {best:g}, longer; validation by step: {curve}")


if __name__ == "__main__":
    main()
