"""Small trees in DomainBed's format, with made-up accuracies: whole, mixed and odd ones."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Line = dict[str, Any]

PARTS = {
    "PACS": ((1639, 1876, 1336, 3144), (409, 468, 334, 785)),
    "VLCS": ((1132, 2125, 2626, 2701), (283, 531, 656, 675)),
    "RotatedMNIST": ((9334,) * 6, (2333,) * 6),
    "MyData": ((80, 120, 100), (20, 30, 25)),
}
"""Samples of each domain in the parts of 80 % and of 20 %; a set that genie-dg does not know is among them."""

STEPS = (0, 300, 600, 5000)

OWN: dict[str, Line] = {
    "ERM": {},
    "CORAL": {"mmd_gamma": 1.0},
    "DANN": {
        "lambda": 1.0,
        "weight_decay_d": 0.0,
        "d_steps_per_g_step": 1,
        "grad_penalty": 0.0,
        "beta1": 0.5,
        "mlp_width": 256,
        "mlp_depth": 3,
        "mlp_dropout": 0.0,
        "lr_g": 5e-5,
        "lr_d": 5e-5,
        "weight_decay_g": 0.0,
    },
}
"""The hyper-parameters that each algorithm has for itself."""


def lines_of(
    dataset: str = "PACS",
    algorithm: str = "ERM",
    test: tuple[int, ...] = (0,),
    hparams: int = 0,
    trial: int = 0,
    holdout: float = 0.2,
    resnet18: bool = False,
) -> list[Line]:
    """The records of one run."""
    stream = random.Random(repr((dataset, algorithm, test, hparams, trial, holdout)))
    args: Line = {
        "algorithm": algorithm,
        "dataset": dataset,
        "test_envs": list(test),
        "task": "domain_generalization",
        "trial_seed": trial,
        "hparams_seed": hparams,
        "seed": stream.randrange(2**31),
        "steps": None,
        "holdout_fraction": holdout,
        "uda_holdout_fraction": 0,
        "checkpoint_freq": None,
        "hparams": None,
        "data_dir": "data",
        "output_dir": "sweep",
        "skip_model_save": False,
    }
    draws = random.Random(repr((hparams, trial)))  # the same whatever is left out
    rate = 5e-5 if hparams == 0 else 10 ** draws.uniform(-5, -3.5)
    drawn: Line = {
        "lr": rate,
        "batch_size": 32 if hparams == 0 else draws.randrange(8, 46),
        "weight_decay": 0.0,
        "resnet18": resnet18,
        "resnet_dropout": (0.0, 0.1, 0.5)[hparams % 3],
        "data_augmentation": True,
        "class_balanced": False,
        "nonlinear_classifier": False,
        **{key: value * (1 + hparams) for key, value in OWN[algorithm].items()},
    }
    found = []
    for at, step in enumerate(STEPS):
        line = {"args": args, "hparams": drawn, "step": step, "epoch": step / 41, "loss": 2.0 / (1 + at)}
        for part, sizes in zip(("in", "out"), PARTS[dataset], strict=True):
            for k, size in enumerate(sizes):
                mean = (0.3, 0.7, 0.8, 0.8)[at] - 0.15 * (k in test)
                line[f"env{k}_{part}_acc"] = round(size * (mean + stream.uniform(-0.1, 0.1))) / size
        found.append({**line, "step_time": 0.25})
    return found


def write(tree: Path, lines: Iterable[Line | str], done: bool = True, name: str = "") -> None:
    """One folder of a tree; a line that is text is written as it is."""
    texts = [line if isinstance(line, str) else json.dumps(line, sort_keys=True) for line in lines]
    folder = tree / (name or hashlib.md5("".join(texts).encode()).hexdigest())
    folder.mkdir(parents=True)
    (folder / "results.jsonl").write_text("".join(f"{text}\n" for text in texts))
    if done:
        (folder / "done").write_text("done")
