"""How to run a row again: a command line for runs by hand, a sweep file for runs of a protocol."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any

from genie_dg.results.schema import Run
from genie_dg.runs.record import RunConfig

SWITCHES = (
    "steps",
    "checkpoint_every",
    "backbone",
    "pretrained",
    "image_size",
    "swad",
    "precision",
    "augment",
    "eval_augment",
)
"""Fields that the search never draws; a sweep that changed its protocol is told by their values."""


def rerun(runs: Sequence[Run]) -> str:
    """The text for the runs of one row on one data set.

    Runs by hand (protocol ``custom``) have one command each, the first of which is shown. Runs of a protocol
    have a sweep file; after ``/changed`` it fixes the fields in which the search has no part.
    """
    first = min(runs, key=lambda run: (run.config.hparams_seed, run.config.test_domains, run.config.trial_seed))
    if first.config.protocol == "custom":
        more = f"# one of {len(runs)} runs; the others differ in what their config.json says\n"
        return (more if len(runs) > 1 else "") + train_command(first)
    return "# genie-dg sweep FILE.toml, with this in the file, as far as the runs tell:\n" + sweep_text(runs)


def train_command(run: Run) -> str:
    """The command line of one run.

    >>> import numpy as np
    >>> config = RunConfig("digits", (1,), optimizer="sam", backbone="mlp", optimizer_settings={"rho": 0.1})
    >>> print(train_command(Run("", config, ("0 degrees", "15 degrees"), np.zeros((0, 8)))))
    genie-dg train digits --test-domain '15 degrees' --algorithm ERM --optimizer sam --backbone mlp \
--steps 1000 --every 100 --batch-size 32 --dropout 0.0 --image-size 224 \
--precision float32 --trial 0 --set rho=0.1
    """
    c = run.config
    words = ["genie-dg", "train", c.dataset]
    for k in c.test_domains:
        words += ["--test-domain", run.domains[k]]
    told: dict[str, Any] = {
        "algorithm": c.algorithm,
        "optimizer": c.optimizer,
        "backbone": c.backbone,
        "steps": c.steps,
        "every": c.checkpoint_every,
        "batch-size": c.batch_size,
        "dropout": c.dropout,
        "image-size": c.image_size,
        "precision": c.precision,
        "trial": c.trial_seed,
    }
    for key, value in told.items():
        words += [f"--{key}", str(value)]
    words += ["--pretrained"] * c.pretrained + ["--swad"] * c.swad + ["--no-augment"] * (not c.augment)
    for key, value in {**c.algorithm_settings, **c.optimizer_settings}.items():
        words += ["--set", f"{key}={value}"]
    return shlex.join(words)


def sweep_text(runs: Sequence[Run]) -> str:
    """A sweep file for the runs of one row."""
    c: RunConfig = runs[0].config
    base, _, changed = c.protocol.partition("/")
    tests = sorted({run.config.test_domains for run in runs})
    count = len(runs[0].domains)
    kinds: dict[str, list[tuple[int, ...]]] = {
        "leave-one-out": [(k,) for k in range(count)],
        "single-source": [tuple(i for i in range(count) if i != k) for k in range(count)],
    }
    named = [name for name, members in kinds.items() if sorted(members) == tests]
    lines: dict[str, Any] = {
        "name": "again",
        "protocol": base,
        "datasets": [c.dataset],
        "algorithms": [c.algorithm],
        "optimizers": [c.optimizer],
        "test_domains": named[0] if named else [[runs[0].domains[k] for k in test] for test in tests],
        "hparams": sorted({run.config.hparams_seed for run in runs}),
        "trials": sorted({run.config.trial_seed for run in runs}),
    }
    text = [f"{key} = {json.dumps(value)}" for key, value in lines.items()]
    if changed:
        fixed = {name: {getattr(run.config, name) for run in runs} for name in SWITCHES}
        text += ["", "[overrides]"]
        text += [f"{name} = {json.dumps(next(iter(v)))}" for name, v in fixed.items() if len(v) == 1]
        for name in ("batch_size", "dropout"):
            values = {getattr(run.config, name) for run in runs}
            if len(values) == 1 and len(lines["hparams"]) > 1:
                text.append(f"{name} = {json.dumps(values.pop())}")
    return "\n".join(text)
