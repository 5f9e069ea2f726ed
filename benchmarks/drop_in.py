"""GENIE in place of Adam, nothing tuned: eight tasks, none of which chose the design.

    python benchmarks/drop_in.py [--pacs FOLDER] [--fashion FOLDER] [--jobs 2] [--tasks NAME ...] [--seeds 5]
    python benchmarks/drop_in.py --table
    python benchmarks/drop_in.py --alarms [--pacs FOLDER] [--fashion FOLDER]

Each task is trained with Adam and GENIE at several rates (one seed) and with the best of them (all seeds), with
Adam's default, with GENIE's published default and with ``GENIE(scale_free=True)``, the last two with the loss
multiplied by 0.01, 1 and 100. Results go to ``benchmarks/drop_in.jsonl``, one line a run; what is there is not
run again. The score is the accuracy in percent on held-back samples, or the loss where the task is a regression
or a language. Printed are the peers' scores and what the option loses against tuned Adam.
"""

from __future__ import annotations

import argparse
import functools
import gzip
import json
import math
import multiprocessing
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from genie_dg import GENIE

OUT = Path(__file__).with_name("drop_in.jsonl")
ADAM = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
PUBLISHED = (5e-4, 1.5e-3, 5e-3, 1.5e-2, 5e-2, 0.15, 0.5, 1.5, 5.0)
SCALES = (0.01, 1.0, 100.0)
FOLDERS: dict[str, Path] = {}


@dataclass
class Task:
    """A network at its start, its data, and how long it is trained."""

    model: nn.Module
    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor
    steps: int
    batch: int = 64
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy
    smaller_is_better: bool = False


def held_back(model: nn.Module, x: Tensor, y: Tensor, steps: int, **more: Any) -> Task:
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    test, train = order[: len(x) // 4], order[len(x) // 4 :]
    return Task(model, x[train], y[train], x[test], y[test], steps, **more)


def digits_mlp() -> Task:
    x, y = _digits()
    sizes = [nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)]
    return held_back(nn.Sequential(*sizes), x, y, 300)


def digits_cnn() -> Task:
    x, y = _digits()
    return held_back(_cnn(2), x, y, 300)


def fashion_cnn() -> Task:
    x, y = _fashion(4000)
    return held_back(_cnn(7), x, y, 250)


def characters() -> Task:
    from sklearn import datasets

    names = ("digits", "breast_cancer", "diabetes", "wine", "iris", "linnerud")
    text = "".join(getattr(datasets, f"load_{name}")().DESCR for name in names)
    letters = sorted(set(text))
    codes = torch.tensor([letters.index(c) for c in text])
    windows = codes.unfold(0, 33, 8)
    model = Transformer(len(letters))
    loss = lambda out, y: F.cross_entropy(out.flatten(0, 1), y.flatten())  # noqa: E731
    return held_back(model, windows[:, :-1], windows[:, 1:], 400, batch=32, loss=loss, smaller_is_better=True)


def diabetes() -> Task:
    """The squared error is in the thousands."""
    from sklearn.datasets import load_diabetes

    x, y = (torch.tensor(part, dtype=torch.float32) for part in load_diabetes(return_X_y=True))
    layers = [nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1), nn.Flatten(0)]
    return held_back(nn.Sequential(*layers), x / x.std(0), y, 500, loss=F.mse_loss, smaller_is_better=True)


@functools.cache
def _styleshapes() -> tuple[Tensor, Tensor]:
    from genie_dg.data.registry import open_data

    domains = open_data("styleshapes").domains
    x = torch.cat([d.images[:150] for d in domains]).float() / 255  # type: ignore[attr-defined]
    return x, torch.cat([torch.as_tensor(d.labels[:150]) for d in domains])


@functools.cache
def _pacs() -> tuple[Tensor, Tensor]:
    from PIL import Image

    root = FOLDERS["pacs"]
    classes = sorted(path.name for path in (next(p for p in sorted(root.iterdir()) if p.is_dir())).iterdir())
    files = [
        p for d in sorted(root.iterdir()) if d.is_dir() for c in classes for p in sorted((d / c).iterdir())[:40]
    ]
    pictures = [np.asarray(Image.open(path).convert("RGB").resize((64, 64))) for path in files]
    x = torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).float() / 255
    return x, torch.tensor([classes.index(path.parent.name) for path in files])


def styleshapes() -> Task:
    return _fine_tuning(*_styleshapes())


def pacs() -> Task:
    return _fine_tuning(*_pacs())


def vit() -> Task:
    x, y = _fashion(3000)
    return held_back(VisionTransformer(), x, y, 300)


TASKS: dict[str, Callable[[], Task]] = {
    "digits MLP": digits_mlp,
    "digits CNN": digits_cnn,
    "FashionMNIST CNN": fashion_cnn,
    "characters, transformer": characters,
    "diabetes, regression": diabetes,
    "StyleShapes, fine-tuned": styleshapes,
    "PACS, fine-tuned": pacs,
    "ViT from scratch": vit,
}


def _digits() -> tuple[Tensor, Tensor]:
    from sklearn.datasets import load_digits

    data = load_digits()
    return torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16, torch.tensor(data.target)


def _fashion(count: int) -> tuple[Tensor, Tensor]:
    def read(name: str, skip: int) -> Tensor:
        path = next(p for p in sorted(FOLDERS["fashion"].rglob("*")) if p.is_file() and name in p.name)
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        return torch.frombuffer(bytearray(raw), dtype=torch.uint8)[skip:]

    images = read("train-images", 16).view(-1, 1, 28, 28)[:count].float() / 255
    return images, read("train-labels", 8)[:count].long()


def _cnn(side: int) -> nn.Module:
    first, second = nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.Conv2d(16, 32, 3, stride=2, padding=1)
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Flatten(), nn.Linear(32 * side * side, 10))


def _fine_tuning(x: Tensor, y: Tensor) -> Task:
    from genie_dg.facts import IMAGENET_MEAN, IMAGENET_STD
    from genie_dg.models.classifier import build_network

    mean, std = (torch.tensor(t).view(3, 1, 1) for t in (IMAGENET_MEAN, IMAGENET_STD))
    x = (F.interpolate(x, 64) - mean) / std
    model = build_network("efficientnet_lite0", int(y.max()) + 1, 3, 64, pretrained=True)
    return held_back(model.to(memory_format=torch.channels_last), x, y, 80, batch=24)


class Transformer(nn.Module):
    def __init__(self, letters: int, width: int = 64, length: int = 32) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.embed, self.place = nn.Embedding(letters, width), nn.Parameter(torch.randn(length, width) * 0.02)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(width, letters)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length))

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.blocks(self.embed(x) + self.place, mask=self.mask))


class VisionTransformer(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.patches = nn.Conv2d(1, width, 4, stride=4)
        self.place = nn.Parameter(torch.randn(49, width) * 0.02)
        self.blocks = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.out = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.blocks(self.patches(x).flatten(2).mT + self.place).mean(1))


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "sgd": functools.partial(torch.optim.SGD, momentum=0.9),  # for suggest_lr.py
    "genie": GENIE,
    "option": functools.partial(GENIE, scale_free=True),
}


def run(task: str, optimizer: str, lr: float, scale: float, seed: int, most: int = 10**6) -> dict[str, Any]:
    """One training, of so many steps at most: its score, the relative step at step 50, and any warning."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    made = TASKS[task]()
    model, generator = made.model, torch.Generator().manual_seed(seed)
    stepper = OPTIMIZERS[optimizer]([p for p in model.parameters() if p.requires_grad], lr=lr)
    relative, began, last = math.nan, time.perf_counter(), math.nan
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model.train()
        for step in range(1, min(made.steps, most) + 1):
            rows = torch.randint(len(made.x), (made.batch,), generator=generator)
            loss = made.loss(model(made.x[rows]), made.y[rows])
            stepper.zero_grad()
            (loss * scale).backward()
            stepper.step()
            last = float(loss.detach())
            if step == 50 and isinstance(stepper, GENIE):
                relative = stepper.gauges()["relative_step"]
            if not math.isfinite(last) and step > 50:
                break
    told_of = next((str(w.message) for w in told if "GENIE: at step" in str(w.message)), "")
    model.eval()
    with torch.no_grad():
        out = torch.cat([model(part) for part in made.test_x.split(256)])
    better = (
        made.loss(out, made.test_y)
        if made.smaller_is_better
        else 100 * (out.argmax(-1) == made.test_y).float().mean()
    )
    return {
        "task": task,
        "optimizer": optimizer,
        "lr": lr,
        "scale": scale,
        "seed": seed,
        "score": round(float(better), 4),
        "train_loss": round(last, 5),
        "relative_step": relative,
        "warning": "explode" if "explode" in told_of else "dead" if told_of else "",
        "seconds": round(time.perf_counter() - began, 2),
    }


Key = tuple[str, str, float, float, int]


def key(line: dict[str, Any]) -> Key:
    return line["task"], line["optimizer"], line["lr"], line["scale"], line["seed"]


def known() -> dict[Key, dict[str, Any]]:
    lines = OUT.read_text(encoding="utf-8").splitlines() if OUT.exists() else []
    return {key(line): line for line in map(json.loads, lines)}


def best_rate(task: str, optimizer: str, lines: dict[Key, dict[str, Any]]) -> float | None:
    """Of the grid, with seed 0; None before the grid is done."""
    rates = ADAM if optimizer == "adam" else PUBLISHED
    tried = [lines.get((task, optimizer, lr, 1.0, 0)) for lr in rates]
    if any(line is None for line in tried):
        return None
    sign = -1 if task in SMALLER else 1
    finite = [line for line in tried if line is not None and math.isfinite(line["score"])]
    return max(finite, key=lambda line: sign * line["score"])["lr"]


SMALLER = ("characters, transformer", "diabetes, regression")


def wanted(task: str, seeds: int, lines: dict[Key, dict[str, Any]]) -> list[Key]:
    runs: list[Key] = [(task, "adam", lr, 1.0, 0) for lr in ADAM]
    runs += [(task, "genie", lr, 1.0, 0) for lr in PUBLISHED]
    for seed in range(seeds):
        runs += [(task, "option", 0.015, scale, seed) for scale in SCALES]
        runs += [(task, "genie", 0.015, scale, seed) for scale in SCALES]
        runs += [(task, "adam", 1e-3, 1.0, seed)]
        for optimizer in ("adam", "genie"):
            if (lr := best_rate(task, optimizer, lines)) is not None:
                runs.append((task, optimizer, lr, 1.0, seed))
    return [one for one in dict.fromkeys(runs) if one not in lines]


def table(lines: dict[Key, dict[str, Any]], seeds: int) -> None:
    def mean(task: str, optimizer: str, lr: float | None, scale: float = 1.0) -> float:
        if lr is None:
            return math.nan
        scores = [
            lines.get((task, optimizer, lr, scale, seed), {}).get("score", math.nan) for seed in range(seeds)
        ]
        return statistics.fmean(scores)

    heads = [
        "Adam tuned",
        "GENIE tuned",
        "Adam 1e-3",
        "GENIE 0.015",
        "x 0.01",
        "x 100",
        "option",
        "x 0.01",
        "x 100",
    ]
    print("| task | " + " | ".join([*heads, "option less tuned Adam (worst scale)"]) + " |")
    print("|---" * (len(heads) + 2) + "|")
    within = 0
    for task in TASKS:
        adam, genie = (best_rate(task, name, lines) for name in ("adam", "genie"))
        cells = [mean(task, "adam", adam), mean(task, "genie", genie), mean(task, "adam", 1e-3)]
        cells += [mean(task, "genie", 0.015, scale) for scale in (1.0, 0.01, 100.0)]
        options = [mean(task, "option", 0.015, scale) for scale in (1.0, 0.01, 100.0)]
        gaps = [100 * (cells[0] - o) / cells[0] if task in SMALLER else o - cells[0] for o in options]
        within += min(gaps) >= (-2.0 if task in SMALLER else -1.0)
        numbers = " | ".join(f"{x:.4g}" for x in (*cells, *options))
        gap = f"{min(gaps):+.1f}{' %' if task in SMALLER else ''}"
        rates = f"{task} (Adam {adam}, GENIE {genie})"
        print(f"| {rates} | {numbers} | {gap} |")
    print(f"\nWithin 1 point, or 2 % of the loss, of tuned Adam at all three scales: {within} of {len(TASKS)}.")


def alarms(tasks: Sequence[str], jobs: int) -> None:
    """Which of GENIE's runs are warned of within their first 50 steps, beside what became of them."""
    lines = known()
    asked = [key for key in lines if key[1] in ("genie", "option") and key[4] == 0 and key[0] in tasks]
    print(
        "| task | optimizer | lr | loss x | warned of | score after the whole run |\n|---|---|---|---|---|---|"
    )
    for task in tasks:
        mine = [key for key in asked if key[0] == task]
        TASKS[task]()
        with multiprocessing.get_context("fork").Pool(jobs) as pool:
            for one, line in zip(mine, pool.map(_first_steps, mine), strict=True):
                cells = (*one[:4], line["warning"] or "-", lines[one]["score"])
                print(f"| {' | '.join(map(str, cells))} |", flush=True)


def _first_steps(one: Key) -> dict[str, Any]:
    return run(*one, most=51)


def ready(tasks: Sequence[str], pacs_folder: Path | None, fashion_folder: Path | None) -> list[str]:
    """The tasks whose data are there."""
    FOLDERS.update({name: path for name, path in (("pacs", pacs_folder), ("fashion", fashion_folder)) if path})
    needs = {"pacs": (pacs,), "fashion": (fashion_cnn, vit)}
    missing = {task for name, functions in needs.items() if name not in FOLDERS for task in functions}
    return [task for task in tasks if TASKS[task] not in missing]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pacs", type=Path, help="<domain>/<class>/<picture>")
    parser.add_argument("--fashion", type=Path, help="the folder of FashionMNIST's files")
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=TASKS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--table", action="store_true", help="print only")
    parser.add_argument("--alarms", action="store_true", help="train 51 steps: which runs are warned of?")
    given = parser.parse_args()
    if given.alarms:
        alarms(ready(given.tasks, given.pacs, given.fashion), given.jobs)
        return
    for task in [] if given.table else ready(given.tasks, given.pacs, given.fashion):
        TASKS[task]()  # data that the processes below share
        with multiprocessing.get_context("fork").Pool(given.jobs) as pool:
            while runs := wanted(task, given.seeds, known()):
                for line in pool.imap_unordered(_run, runs):
                    with OUT.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(line) + "\n")
                    told = f"{line['score']} {line['warning']} {line['seconds']} s"
                    print(*key(line), told, file=sys.stderr, flush=True)
    table(known(), given.seeds)


def _run(one: Key) -> dict[str, Any]:
    return run(*one)


if __name__ == "__main__":
    main()
