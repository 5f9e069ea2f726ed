"""How near `genie_dg.optim.suggest_lr` comes to the best rate of a grid, on the eight tasks of `drop_in.py`.

    python benchmarks/suggest_lr.py --pacs FOLDER --fashion FOLDER [--tasks NAME ...] [--jobs 2]
    python benchmarks/suggest_lr.py --table

For GENIE, SGD (momentum 0.9) and Adam. The grid is that of `drop_in.py` with half decades throughout: the whole
training at each rate, seed 0, ranked by the score on held-back samples. The suggestion, from another seed, sees
training batches alone. Results go to ``benchmarks/suggest_lr.jsonl``; what is there is not run again.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import sys
import time
from pathlib import Path
from typing import Any

import drop_in
import torch
from drop_in import TASKS

from genie_dg.optim import suggest_lr

OUT = Path(__file__).with_name("suggest_lr.jsonl")
RATES = {
    "genie": drop_in.PUBLISHED,
    "adam": (*drop_in.ADAM, 0.03),
    "sgd": (1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3),
}
SEED = 7


def grid(one: tuple[str, str, float]) -> dict[str, Any]:
    """A training at a rate; those of GENIE and Adam are in drop_in's file."""
    task, optimizer, lr = one
    return drop_in.run(task, optimizer, lr, 1.0, 0)


def suggest(one: tuple[str, str]) -> dict[str, Any]:
    """What is suggested, and what it took."""
    task, optimizer = one
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    made, generator = TASKS[task](), torch.Generator().manual_seed(SEED)
    rows = [torch.randint(len(made.x), (made.batch,), generator=generator) for _ in range(made.steps)]
    batches = [(made.x[row], made.y[row]) for row in rows]
    began = time.perf_counter()
    made.model.train()
    found = suggest_lr(
        made.model,
        lambda model, batch: made.loss(model(batch[0]), batch[1]),
        batches,
        drop_in.OPTIMIZERS[optimizer],
        steps=min(100, made.steps),
    )
    seconds = round(time.perf_counter() - began, 1)
    return {"task": task, "suggested by": optimizer, "lr": found.lr, "reason": found.reason, "seconds": seconds}


def known() -> list[dict[str, Any]]:
    lines = OUT.read_text(encoding="utf-8").splitlines() if OUT.exists() else []
    return [*map(json.loads, lines), *drop_in.known().values()]


def best_of(task: str, optimizer: str, lines: list[dict[str, Any]]) -> tuple[float, bool] | None:
    """The best rate of the grid, and whether it is at its end; None when the grid is not complete."""
    sign = -1 if task in drop_in.SMALLER else 1
    scores = {
        line["lr"]: line["score"]
        for line in lines
        if (line["task"], line.get("optimizer"), line.get("scale"), line.get("seed"))
        == (task, optimizer, 1.0, 0)
    }
    if not set(RATES[optimizer]) <= set(scores):
        return None
    finite = [lr for lr in RATES[optimizer] if math.isfinite(scores[lr])]
    best = max(finite, key=lambda lr: sign * scores[lr])
    return best, best in (RATES[optimizer][0], RATES[optimizer][-1])


def table(lines: list[dict[str, Any]]) -> None:
    suggested = {(line["task"], line["suggested by"]): line for line in lines if "suggested by" in line}
    near: dict[str, list[str]] = {name: [] for name in RATES}
    print("| task | optimizer | best of the grid | suggested | factor | seconds |\n|---|---|---|---|---|---|")
    for task in TASKS:
        for optimizer in RATES:
            best, line = best_of(task, optimizer, lines), suggested.get((task, optimizer))
            if best is None or line is None:
                print(f"| {task} | {optimizer} | not measured | | | |")
                continue
            factor = line["lr"] / best[0]
            near[optimizer] += [task] if 1 / 3 <= factor <= 3 else []
            end = " (end of the grid)" if best[1] else ""
            numbers = f"{best[0]:g}{end}", f"{line['lr']:.2g}", f"{factor:.2g}", line["seconds"]
            print(f"| {' | '.join(map(str, (task, optimizer, *numbers)))} |")
    for optimizer, tasks in near.items():
        print(f"\n{optimizer}: within a factor of 3 on {len(tasks)} of {len(TASKS)}: {'; '.join(tasks)}.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pacs", type=Path, help="<domain>/<class>/<picture>")
    parser.add_argument("--fashion", type=Path, help="the folder of FashionMNIST's files")
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=TASKS)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--table", action="store_true", help="print only")
    given = parser.parse_args()
    chosen = [] if given.table else drop_in.ready(given.tasks, given.pacs, given.fashion)
    for task in chosen:
        TASKS[task]()  # data that the processes below share
        lines = known()
        there = {(line["task"], line.get("optimizer"), line["lr"]) for line in lines if line.get("seed") == 0}
        there |= {(line["task"], line["suggested by"]) for line in lines if "suggested by" in line}
        grids = [(task, name, lr) for name, rates in RATES.items() for lr in rates]
        asks = [(task, name) for name in RATES]
        with multiprocessing.get_context("fork").Pool(given.jobs) as pool:
            for function, work in ((suggest, asks), (grid, grids)):
                for line in pool.imap_unordered(function, [one for one in work if one not in there]):
                    with OUT.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(line) + "\n")
                    print({k: v for k, v in line.items() if k != "reason"}, file=sys.stderr, flush=True)
    table(known())


if __name__ == "__main__":
    main()
