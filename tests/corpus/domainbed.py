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


def make_trees(root: Path) -> None:
    """All trees: ``tree`` is a sweep on PACS, the others are small."""
    for algorithm in OWN:
        for k in range(36):
            test, hparams, trial = (k % 4,), k // 4 % 3, k // 12
            lines: list[Line | str] = [*lines_of("PACS", algorithm, test, hparams, trial)]
            if (algorithm, test, hparams, trial) == ("CORAL", (1,), 1, 0):
                lines.insert(2, "Traceback (most recent call last):")
            if (algorithm, test, hparams, trial) == (
                "DANN",
                (2,),
                1,
                1,
            ):  # the validation of draw 0, to the digit
                lines = [
                    _as_good(x, y) for x, y in zip(lines_of("PACS", "DANN", (2,), 1, 1), _draw_0(), strict=True)
                ]
            write(root / "tree", lines, (algorithm, test, hparams, trial) != ("ERM", (3,), 2, 2))
    for a, b in ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3)):  # without (2, 3): 0 and 1 have all their partners
        for k in range(4):
            write(root / "tree", lines_of("PACS", "ERM", (a, b), k % 2, k // 2))
    for k in range(24):
        write(root / "tree-more", lines_of("VLCS", ("ERM", "CORAL")[k // 12], (k % 4,), 0, k // 4 % 3))
    for k in range(4):
        write(root / "tree-other", lines_of("PACS", "ERM", (k,), holdout=0.3))
    _odd(root / "tree-odd")
    later: list[Line | str] = [*lines_of(hparams=5)]
    write(root / "tree-odd-later", later, name="goes-on")
    write(root / "tree-odd-later", lines_of(hparams=6)[1:], name="other-records")


def _draw_0() -> list[Line]:
    return lines_of("PACS", "DANN", (2,), 0, 1)


def _as_good(line: Line, other: Line) -> Line:
    return {key: other[key] if key.endswith("_out_acc") else value for key, value in line.items()}


def _odd(tree: Path) -> None:
    """One folder for each thing that can be wrong or rare."""
    write(tree, lines_of(hparams=5)[:2], done=False, name="goes-on")
    write(tree, lines_of(hparams=6), name="other-records")
    write(tree, ["", *lines_of(hparams=7)[:2], '{"step": 1', "[]", *lines_of(hparams=7)[2:]], name="garbage")
    write(tree, [*lines_of(hparams=8)[:3], *lines_of(hparams=8)], name="began-again")
    write(tree, lines_of(hparams=9), name="same-1")
    write(tree, lines_of(hparams=9), name="same-2")
    first, *rest = lines_of(hparams=10)
    write(tree, [{**first, "loss": float("nan")}, *rest], name="loss-is-nan")
    write(tree, [{**first, "env1_in_acc": 1.5}, *lines_of(hparams=11)[1:]], name="too-right")
    write(tree, lines_of(hparams=12, resnet18=True), name="resnet18")
    write(tree, lines_of("RotatedMNIST", test=(5,)), name="digits/turned")
    write(tree, lines_of("MyData", test=(1,)), name="own/deeper/set")
    write(tree, [], name="empty")
    args = {key: value for key, value in first["args"].items() if key != "test_envs"}
    write(tree, [{**first, "args": args}], name="no-test-envs")
    write(tree, [{key: value for key, value in first.items() if key != "hparams"}], name="no-hparams")
    write(tree, [{**first, "step": "one"}], name="no-step")
