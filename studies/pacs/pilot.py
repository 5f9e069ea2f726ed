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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
RATES = {
    "sgd": (1e-3, 3e-3, 1e-2, 3e-2, 1e-1),
    "adam": (3e-5, 1e-4, 3e-4, 1e-3),
    "sam-sgd": (1e-3, 3e-3, 1e-2, 3e-2, 1e-1),
    "sam-adam": (3e-5, 1e-4, 3e-4, 1e-3),
    "msvag": (1e-3, 3e-3, 1e-2, 3e-2, 1e-1),
    "genie": (5e-4, 1.5e-3, 5e-3, 1.5e-2, 5e-2),
    "genie-precondition": (5e-4, 1.5e-3, 5e-3, 1.5e-2, 5e-2),
    "genie-scale-free": (5e-3, 1.5e-2, 5e-2),
}
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pacs", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/pacs-pilot"))
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    asked = [(name, lr, 151) for name, rates in RATES.items() for lr in rates]
    asked += [("adam", 1e-4, LONG), ("adam", 3e-4, LONG)]
    with ThreadPoolExecutor(given.jobs) as pool:
        found = dict(zip(asked, pool.map(lambda one: train(given.pacs, given.out, *one), asked), strict=True))
    print("| row | lr | validation after 75 and 150 steps | sketch after 150 |\n|---|---|---|---|")
    for (name, lr, steps), records in found.items():
        if steps != LONG:
            curve = " ".join(f"{r['validation']:.1f}" for r in records if r["step"])
            last = f"{records[-1]['test']:.1f}" if records else "failed"
            print(f"| {name} | {lr:g} | {curve} | {last} |")
    for (name, lr, steps), records in found.items():
        if steps == LONG:
            print(f"\n{name} {lr:g}: " + ", ".join(f"{r['step']}: {r['validation']:.1f}" for r in records))


if __name__ == "__main__":
    main()
