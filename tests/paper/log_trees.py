"""Writes a small tree of logs, in the layout of the authors' repository, for tests with exact answers."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

Record = tuple[int, float, float, float]
"""A step, and the accuracies of validation and of the test domain's two parts, from 0 to 1."""

START = datetime(2025, 1, 31, 23, 59, 0)
SECONDS = 100
"""By the clock, between evaluations."""


def write_log(
    root: Path,
    folder: str,
    records: Sequence[Record],
    *,
    dataset: str = "PACS",
    algorithm: str = "ERM",
    optimizer: str = "sgd",
    test: Sequence[int] = (0,),
    trial: int = 0,
    draw: int = 0,
    batch: int = 32,
    steps: int | None = None,
    model: str = "resnet50",
    **drawn: float,
) -> Path:
    """One log; what is drawn beside the rate and the batch is given by its name in the authors' code."""
    path = root / "train_output" / folder / "log.txt"
    path.parent.mkdir(parents=True)
    sizes = [0 if k in test else batch for k in range(4)]
    given = {
        "algorithm": algorithm, "dataset": dataset, "hparams_seed": draw, "steps": steps, "trial_seed": trial,
        "test_envs": list(test),
    }  # fmt: skip
    hparams: dict[str, object] = {"resnet_dropout": 0.0, "optimizer": optimizer, "lr": 5e-5, "model": model}
    hparams["swad_kwargs"] = ""
    lines = ["Args:", *_section(given), "HParams:", *_section({**hparams, **drawn}), "Dataset:", "\tfour"]
    said = [f"Batch sizes for each domain: {sizes} (total={sum(sizes)})"]
    said += ["test_in test_out train_out step step_time eval_time"]
    said += [f"{b:.6f} {c:.6f} {a:.6f} {s} {0.5 if s else 9.0} 30.0" for s, a, b, c in records]
    for k, words in enumerate(said):
        time = START + timedelta(seconds=SECONDS * max(0, k - 2))
        lines.append(f"\x1b[37m\x1b[36mINFO\x1b[0m\x1b[0m {time:%m/%d %H:%M:%S} | {words}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _section(values: dict[str, object]) -> list[str]:
    return [f"\t{key}: {value}" for key, value in values.items()]


def commit(clone: Path) -> str:
    """Put the tree under git, and return what is checked out."""
    git = ["git", "-C", str(clone), "-c", "user.name=test", "-c", "user.email=test@example.org"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "logs"]):
        subprocess.run([*git, *words], check=True, timeout=60)
    return subprocess.run(
        [*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()
