"""How many modules of this package a thing passes on its way: four walks, counted while they happen.

    python benchmarks/walks.py [picture cell page slurm]

A module counts when one of its functions is called on the way. The command line and the leaves (single files
beside the packages, such as ``files.py``) do not count. The walks:

- **picture**: a JPEG file on its way into a training step, from the loop's first request for a batch to
  GENIE's step, which has the gradient then (a small network);
- **cell**: a record in a run's folder on its way to a cell of ``genie-dg table``;
- **page**: what ``genie-dg report`` calls beyond that;
- **slurm**: who hands a Slurm job on, from its start to the training loop: the modules on the stack there.
"""

from __future__ import annotations

import argparse
import inspect
import os
import sys
import tempfile
import threading
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from PIL import Image

SMALL_RUN = ("--steps", "3", "--every", "2", "--batch-size", "4", "--quiet", "--out")


def counts(frame: FrameType) -> bool:
    """Whether a frame is that of a function in one of our packages."""
    name = frame.f_globals.get("__name__", "")
    ours = name.startswith("genie_dg.") and name.count(".") > 1 and not name.startswith("genie_dg.cli")
    return ours and bool(frame.f_code.co_flags & inspect.CO_OPTIMIZED)  # not the body of a class or module


class Arrived(Exception):
    """The walk is over."""


class Walk:
    """Collects the modules whose functions are called while it is on."""

    def __init__(self) -> None:
        self.on = False
        self.modules: set[str] = set()

    def profile(self, frame: FrameType, event: str, argument: Any) -> None:
        """What Python calls at every call."""
        if self.on and event == "call" and counts(frame):
            self.modules.add(frame.f_globals["__name__"])


def genie_dg(*words: str) -> None:
    """The command line, silently."""
    from genie_dg.cli.main import main

    with redirect_stdout(StringIO()):
        if code := main(list(words)):
            raise SystemExit(f"genie-dg {' '.join(words)} ended with exit code {code}.")


def picture(walk: Walk, folder: Path) -> set[str]:
    """From a file to the optimizer."""
    import genie_dg.bench.train as training
    from genie_dg.optim.genie import GENIE

    for number, name in enumerate(f"{domain}/{label}" for domain in "abc" for label in "xy"):
        (folder / "pictures" / name).mkdir(parents=True)
        for k in range(10):
            pixels = np.random.default_rng([number, k]).integers(0, 256, (40, 40, 3), np.uint8)
            Image.fromarray(pixels).save(folder / "pictures" / name / f"{k}.jpg")
    ahead = training.ahead

    def counted(*arguments: Any, **named: Any) -> Any:
        walk.on = True
        return ahead(*arguments, **named)

    def arrive(self: GENIE, closure: Any) -> None:
        with torch.enable_grad():
            closure()
        walk.on = False
        raise Arrived

    with patch.object(training, "ahead", counted), patch.object(GENIE, "step", arrive), suppress(Arrived):
        words = (
            "--test-domain",
            "a",
            "--backbone",
            "cnn",
            "--image-size",
            "32",
            *SMALL_RUN,
            str(folder / "runs"),
        )
        genie_dg("train", str(folder / "pictures"), *words)
    return walk.modules | {"genie_dg.optim.genie"}


def cell(walk: Walk, folder: Path) -> set[str]:
    """From a record to a cell of a table."""
    for optimizer in ("adam", "sgd"):
        for trial in ("0", "1"):
            words = ("--test-domain", "0", "--backbone", "mlp", "--optimizer", optimizer, "--trial", trial)
            genie_dg("train", "digits", *words, *SMALL_RUN, str(folder / "digits"))
    genie_dg("table", str(folder / "digits"))  # imports
    walk.on = True
    genie_dg("table", str(folder / "digits"))
    walk.on = False
    return walk.modules


def page(walk: Walk, folder: Path) -> set[str]:
    """From a record to the page, without what leads to a cell."""
    before = set(cell(walk, folder))
    genie_dg("report", str(folder / "digits"), "-o", str(folder / "page.html"))  # imports
    walk.modules.clear()
    walk.on = True
    genie_dg("report", str(folder / "digits"), "-o", str(folder / "page.html"))
    walk.on = False
    return walk.modules - before


def slurm(walk: Walk, folder: Path) -> set[str]:
    """From a Slurm job's start to its training loop."""
    import genie_dg.bench.train as training
    from genie_dg.bench.engines._slurm_task import RunTask
    from genie_dg.bench.options import Job, RunOptions
    from genie_dg.runs.config import RunConfig

    config = RunConfig("digits", (0,), optimizer="adam", backbone="mlp", steps=2)
    task = RunTask(Job(config, "digits", RunOptions(out=str(folder / "slurm"), device="cpu")))

    def arrive(*arguments: Any, **named: Any) -> Any:
        frame: FrameType | None = sys._getframe()
        while frame is not None:
            if counts(frame):
                walk.modules.add(frame.f_globals["__name__"])
            frame = frame.f_back
        raise Arrived

    environment = {"SUBMITIT_EXECUTOR": "slurm", "SLURM_JOB_ID": "1"}
    with patch.object(training, "take_steps", arrive), patch.dict(os.environ, environment):
        task()
    return walk.modules


WALKS = {"picture": picture, "cell": cell, "page": page, "slurm": slurm}


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("walks", nargs="*", default=list(WALKS), help=f"of {', '.join(WALKS)} (default: all)")
    names = parser.parse_args().walks
    for name in names:
        walk = Walk()
        threading.setprofile(walk.profile)
        sys.setprofile(walk.profile)
        with tempfile.TemporaryDirectory() as folder:
            modules = WALKS[name](walk, Path(folder))
        sys.setprofile(None)
        short = sorted(module.removeprefix("genie_dg.") for module in modules)
        print(f"{name}: {len(short)} modules: {', '.join(short)}")


if __name__ == "__main__":
    main()
