"""Train the chosen draws of a study again, watched more often, for its curves of OSGR and balance.

    python -m studies.chosen studies/pacs --root FOLDER --out runs/pacs-chosen --cache runs/pacs-cache
    genie-dg pack runs/pacs-chosen -o studies/pacs/chosen

Of every complete row the draw that validation chose in one trial, each domain left out; the same weights and
batches as in the study, with five records after the start in place of one. What is done is not repeated.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

from genie_dg.bench.engines.engine import Update
from genie_dg.bench.engines.launch import launch
from genie_dg.bench.jobs import OpenSets
from genie_dg.bench.options import Job, RunOptions
from genie_dg.runs.config import from_mapping
from genie_dg.runtime import cores
from paper.study import chosen_draws, read_study

RECORDS = 5


def jobs(study: Path, trial: int, options: RunOptions) -> list[Job]:
    """The runs, from the configurations of the chosen ones."""
    planned = []
    for draws in chosen_draws(read_study(study)).values():
        for one in draws:
            if one.trial == trial:
                text = Path(one.folder, "config.json").read_text(encoding="utf-8")
                config = from_mapping(json.loads(text))
                every = max(1, (config.steps - 1) // RECORDS)
                planned.append(Job(replace(config, checkpoint_every=every), one.dataset, options))
    return planned


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path)
    parser.add_argument("--root", required=True, help="the folder that holds the data set")
    parser.add_argument("--out", required=True, help="the folder of the runs")
    parser.add_argument("--cache", default="", help="decoded pictures")
    parser.add_argument("--trial", type=int, default=0)
    parser.add_argument("--workers", type=int, default=cores())
    given = parser.parse_args()
    plugins = tuple(str(path.resolve()) for path in given.study.glob("rows.py"))
    options = RunOptions(
        out=given.out, root=given.root, cache=given.cache, keep="none", watch="updates,osgr", plugin=plugins
    )
    OpenSets().load_plugins(options)
    planned = jobs(given.study, given.trial, options)
    names = {j.config.run_id: f"{j.config.optimizer} without {j.config.test_domains}" for j in planned}

    def report(update: Update) -> None:
        if update.headline in ("done", "failed"):
            print(update.headline, names.get(update.run, update.run), update.reason, flush=True)

    launched = launch(planned, workers=given.workers, report=report)
    print(f"{len(launched.done)} of {len(planned)} runs are done, {len(launched.failed)} failed.")
    return 1 if launched.failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
