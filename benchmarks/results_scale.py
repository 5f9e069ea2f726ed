"""Seconds and memory from run folders to a table, for 5,000 and 50,000 runs of 26 records each.

    python benchmarks/results_scale.py [--runs 5000 50000] [--folder FOLDER]

The runs are synthetic: four domains, four test domains, three trials, twenty draws, as many rows as are needed.
Writing is not timed. Each size is read in fresh processes: first without the index (``frame.arrow``), which
is removed before, then with it; the median of three is shown, with the highest memory that the process had
(resource.getrusage; of the processes that help reading the largest is added). The files come from the operating
system's cache: they have just been written. The table's text must be the same both times.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from genie_dg.runs.config import RunConfig, canonical

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
    """Read, select and write one table; prints the seconds of each part, the peak of memory, a hash."""
    import hashlib

    from genie_dg.results.frame import load
    from genie_dg.results.render import render
    from genie_dg.results.tables import tables

    start = time.perf_counter()
    frame = load(folder)
    loaded = time.perf_counter()
    text = render(tables(frame, "training-domain"))  # selects, then averages
    end = time.perf_counter()
    digest = int(hashlib.sha256(text.encode()).hexdigest()[:8], 16)
    print(json.dumps([loaded - start, end - loaded, peak(), len(frame), digest]))


def peak() -> float:
    """The highest memory of this process and of the largest of its children so far, in MB."""
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(resource.getrusage(one).ru_maxrss for one in who) / 1024


def in_fresh_process(folder: Path) -> list[float]:
    words = [sys.executable, __file__, "--measure", str(folder)]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    numbers: list[float] = json.loads(done.stdout)
    return numbers


def compare(sizes: Sequence[int], folder: Path, rounds: int) -> None:
    print("   runs  read    load s  select and table s  total s  us/run  peak MB")
    totals: dict[str, list[float]] = {"first": [], "second": []}
    for size in sizes:
        write_runs(folder / str(size), size)
        digests = set()
        for which, before in totals.items():
            measured = []
            for _ in range(rounds):
                if which == "first":
                    (folder / str(size) / "frame.arrow").unlink(missing_ok=True)
                measured.append(in_fresh_process(folder / str(size)))
            digests |= {numbers[4] for numbers in measured}
            load, table, memory = (median(numbers[k] for numbers in measured) for k in range(3))
            before.append(median(numbers[0] + numbers[1] for numbers in measured))
            each = 1e6 * before[-1] / size
            line = f"{size:>7} {which:<7} {load:>6.2f} {table:>19.2f} {before[-1]:>8.2f} {each:>7.0f}"
            print(f"{line} {memory:>8.0f}", flush=True)
        if len(digests) != 1:
            raise RuntimeError("The table of the second read is not that of the first.")
    if len(sizes) > 1:
        for which, times in totals.items():
            grown = times[-1] / times[0]
            print(
                f"{sizes[-1] / sizes[0]:.0f} times the runs: the {which} read takes {grown:.1f} times the time"
            )


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
