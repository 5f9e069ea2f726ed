"""Seconds and memory from run folders to a table, for 5,000 and 50,000 runs of 26 records each.

    python benchmarks/results_scale.py [--runs 5000 50000] [--folder FOLDER]

The runs are synthetic: four domains, four test domains, three trials, twenty draws, as many rows as are needed.
Writing them is not timed. Each size is read in fresh processes, three by default; the fastest is shown, with
the highest memory that the process ever had (resource.getrusage). The files come from the operating system's
cache: they have just been written. orjson is used where it is installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from genie_dg.runs.record import RunConfig, canonical

DOMAINS, TRIALS, DRAWS, RECORDS = 4, 3, 20, 26


def write_runs(folder: Path, count: int) -> None:
    """As many run folders as asked for."""
    folder.mkdir(parents=True)
    meta = json.dumps({"domains": ["art_painting", "cartoon", "photo", "sketch"], "device": "cpu"}, indent=1)
    random.seed(0)
    for number in range(count):
        rest, test = divmod(number, DOMAINS)
        rest, trial = divmod(rest, TRIALS)
        row, draw = divmod(rest, DRAWS)
        config = RunConfig(
            "PACS",
            (test,),
            f"algorithm {row:03d}",
            "adam",
            "resnet50",
            {"penalty": random.random(), "anneal": 500},
            {"lr": random.random(), "weight_decay": random.random()},
            steps=5001,
            checkpoint_every=200,
            trial_seed=trial,
            hparams_seed=draw,
            protocol="genie-paper",
        )
        path = folder / config.run_id
        path.mkdir()
        (path / "config.json").write_text(canonical(config) + "\n")
        (path / "meta.json").write_text(meta + "\n")
        (path / "records.jsonl").write_text("".join(record(200 * k) for k in range(RECORDS)))
        (path / "done").touch()


def record(step: int) -> str:
    values: dict[str, object] = {
        "step": step,
        "epoch": step * 32 / 1336,
        "loss": random.random(),
        "validation_loss": random.random(),
        "in_acc": [random.random() for _ in range(DOMAINS)],
        "out_acc": [random.random() for _ in range(DOMAINS)],
    }
    return json.dumps(values, sort_keys=True) + "\n"


def measure(folder: str) -> None:
    """Read, select and write one table; prints the seconds of each part and the peak of memory."""
    from genie_dg.results.formats import render
    from genie_dg.results.store import load
    from genie_dg.results.table import tables

    before, start = peak(), time.perf_counter()
    runs, problems = load(folder)
    loaded = time.perf_counter()
    text = render(tables(runs, "training-domain"))  # selects, then averages
    end = time.perf_counter()
    if problems:
        raise RuntimeError(problems[0])
    print(json.dumps([loaded - start, end - loaded, before, peak(), len(runs), len(text)]))


def peak() -> float:
    """The highest memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def in_fresh_process(folder: Path, rounds: int) -> list[float]:
    found = []
    for _ in range(rounds):
        words = [sys.executable, __file__, "--measure", str(folder)]
        done = subprocess.run(words, check=True, capture_output=True, text=True)
        found.append(json.loads(done.stdout))
    return min(found, key=lambda numbers: sum(numbers[:2]))


def compare(sizes: Sequence[int], folder: Path, rounds: int) -> None:
    reader = "orjson" if importlib.util.find_spec("orjson") else "json"
    print(f"records read with {reader}")
    print("   runs  load s  select and table s  total s  us/run  peak MB  kB/run")
    totals = []
    for size in sizes:
        write_runs(folder / str(size), size)
        load, table, before, after, count, _ = in_fresh_process(folder / str(size), rounds)
        totals.append(load + table)
        each, memory = 1e6 * totals[-1] / count, 1024 * (after - before) / count
        line = f"{int(count):>7} {load:>7.2f} {table:>19.2f} {totals[-1]:>8.2f} {each:>7.0f} {after:>8.0f}"
        print(f"{line} {memory:>7.1f}", flush=True)
    if len(sizes) > 1:
        print(f"{sizes[-1] / sizes[0]:.0f} times the runs take {totals[-1] / totals[0]:.1f} times the time")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, nargs="+", default=[5000, 50000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where the temporary folder is made")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.measure)
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        compare(arguments.runs, Path(folder), arguments.rounds)


if __name__ == "__main__":
    main()
