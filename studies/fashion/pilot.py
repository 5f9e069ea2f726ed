"""The pilot of the study: which rates each row learns at, on trials that the study does not use.

    python studies/fashion/pilot.py FOLDER [--out FOLDER] [--steps 401] [--rows adam sgd ...]

FOLDER holds the folder FashionMNIST. Every row is trained with rates half a decade apart, two trials, the last
domain left out. Validation on the training domains decides; what is done is kept. With `--steps` larger than
the study's it shows how long a row needs.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from genie_dg.bench.engines.launch import launch
from genie_dg.bench.jobs import OpenSets
from genie_dg.bench.options import Job, RunOptions
from genie_dg.bench.sweep import plan
from genie_dg.runs.folder import read_records
from genie_dg.runtime import cores

HERE = Path(__file__).parent
DOMAINS = 4
TRIALS = (90, 91)
POWERS = {
    "adam": (-4.5, -1.0),
    "sgd": (-3.0, 0.5),
    "sam-adam": (-4.5, -1.0),
    "sam-sgd": (-3.0, 0.5),
    "msvag": (-3.0, 0.5),
    "genie": (-2.0, 1.5),
    "genie-precondition": (-2.0, 1.5),
    "genie-scale-free": (-3.5, 0.0),
}
"""By row the powers of ten of the rates that are tried, from and to."""


def jobs(options: RunOptions, steps: int, rows: Sequence[str]) -> dict[tuple[str, float], list[Job]]:
    """By row and power the runs, from those of the study with its default settings."""
    planned: dict[tuple[str, float], list[Job]] = {}
    studied = plan(HERE / "sweep.toml", options).jobs
    left_out = max(job.config.test_domains for job in studied)
    first = {job.config.optimizer: job for job in reversed(studied) if job.config.test_domains == left_out}
    for row in rows:
        low, high = POWERS[row]
        for half in range(round(2 * (high - low)) + 1):
            power = low + half / 2
            for trial in TRIALS:
                config = first[row].config
                settings = {**config.optimizer_settings, "lr": float(f"{10**power:.2g}")}
                config = replace(
                    config, optimizer_settings=settings, trial_seed=trial, steps=steps, checkpoint_every=100
                )
                planned.setdefault((row, power), []).append(replace(first[row], config=config))
    return planned


def validation(job: Job) -> list[float]:
    """Accuracy on the held-back parts of the training domains by record, in percent; empty if it failed."""
    if not job.done:
        return []
    made = read_records(job.folder, DOMAINS)
    return [100 * record.validation(job.config.test_domains) for record in made]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root")
    parser.add_argument("--out", default="runs/fashion-pilot")
    parser.add_argument("--workers", type=int, default=cores())
    parser.add_argument("--steps", type=int, default=401)
    parser.add_argument("--rows", nargs="+", choices=list(POWERS), default=list(POWERS))
    given = parser.parse_args()
    plugins = tuple(str((HERE / name).resolve()) for name in ("../pacs/rows.py", "set.py"))
    options = RunOptions(out=given.out, root=given.root, keep="none", plugin=plugins)
    OpenSets().load_plugins(options)
    planned = jobs(options, given.steps, given.rows)
    launch([job for some in planned.values() for job in some], workers=given.workers)
    print("| row | lr | validation |\n|---|---|---|")
    for (row, power), some in planned.items():
        curves = [validation(job) for job in some]
        shown = " ".join(f"{fmean(at):.1f}" for at in zip(*curves, strict=False)) if all(curves) else "failed"
        print(f"| {row} | {10**power:.2g} | {shown} |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
