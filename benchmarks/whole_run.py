"""A whole run against a plain loop with ``ImageFolder`` and ``DataLoader``, written as DomainBed's train.py is.

Both train the same network on the same pictures with Adam and evaluate at the same steps. The plain loop reads
every batch through worker processes with DomainBed's transforms and evaluates both parts of every domain. Ours
runs as ``genie-dg train`` does: with ``--exact --evaluate all`` (the same work to the picture), ``--exact`` and
by default. Printed are times, their ratio to the plain loop, and where the time goes: ``network`` is forward,
backward and update, ``other`` is mostly the wait for batches.

    python benchmarks/whole_run.py PACS --steps 200 --every 100 --pixels 96 --batch 16 --threads 1
    python benchmarks/whole_run.py PACS --short --threads 1 2
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, RandomSampler, Subset
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

import genie_dg.bench.train as loop
from genie_dg.bench.assemble import assemble
from genie_dg.bench.options import RunOptions
from genie_dg.data.registry import open_data
from genie_dg.data.splits import splits
from genie_dg.facts import IMAGENET_MEAN, IMAGENET_STD
from genie_dg.models.classifier import build_network
from genie_dg.runs.config import RunConfig

LEFT_OUT = 3
SHORT = {"steps": 12, "every": 6, "share": 0.08}
"""What ``--short`` sets: a few minutes for all that is compared, at one and two threads."""


def some_pictures(folder: Path, share: float, into: Path) -> Path:
    """Links to the first pictures of every class, so that a quick look takes minutes."""
    for label in sorted(p for p in folder.glob("*/*") if p.is_dir()):
        files = sorted(label.iterdir())
        target = into / label.relative_to(folder)
        target.mkdir(parents=True)
        for file in files[: max(5, int(share * len(files)))]:
            (target / file.name).symlink_to(file.resolve())
    return into


def transforms(pixels: int) -> tuple[T.Compose, T.Compose]:
    """DomainBed's, for training and for evaluation."""
    finish = [T.ToTensor(), T.Normalize(IMAGENET_MEAN, IMAGENET_STD)]
    changed = [
        T.RandomResizedCrop(pixels, scale=(0.7, 1.0)),
        T.RandomHorizontalFlip(),
        T.ColorJitter(0.3, 0.3, 0.3, 0.3),
        T.RandomGrayscale(),
    ]
    return T.Compose([*changed, *finish]), T.Compose([T.Resize((pixels, pixels)), *finish])


def endless(part: Dataset[Any], batch: int, workers: int) -> Iterator[tuple[Tensor, Tensor]]:
    sampler = RandomSampler(part, replacement=True, num_samples=10**9)  # type: ignore[arg-type]
    return iter(DataLoader(part, batch, sampler=sampler, num_workers=workers, drop_last=True))


def plain_loop(given: argparse.Namespace, folder: Path) -> dict[str, float]:
    """The peer: seconds in all, in evaluation, and in forward, backward and update."""
    began, times = time.perf_counter(), {"evaluation": 0.0, "network": 0.0}
    data, (changing, plain) = open_data(str(folder)), transforms(given.pixels)
    names = [domain.name for domain in data.domains]
    parts = splits(data, 0)
    augmented = [ImageFolder(str(folder / name), changing) for name in names]
    resized = [ImageFolder(str(folder / name), plain) for name in names]
    sources = [k for k in range(len(names)) if k != LEFT_OUT]
    streams = [
        endless(Subset(augmented[k], parts[k].inside.tolist()), given.batch, given.workers) for k in sources
    ]
    evaluated = [
        DataLoader(Subset(resized[k], rows.tolist()), 64, num_workers=given.workers)
        for k in range(len(names))
        for rows in (parts[k].inside, parts[k].outside)
    ]
    torch.manual_seed(0)
    network = build_network(given.network, len(data.classes), 3, given.pixels, pretrained=given.pretrained)
    adam = torch.optim.Adam(network.parameters(), lr=5e-5)
    for step in range(given.steps):
        pairs = [next(stream) for stream in streams]
        images, labels = (torch.cat(list(some)) for some in zip(*pairs, strict=True))
        start = time.perf_counter()
        loss = torch.nn.functional.cross_entropy(network(images), labels)
        adam.zero_grad()
        loss.backward()
        adam.step()
        times["network"] += time.perf_counter() - start
        if step % given.every == 0 or step == given.steps - 1:
            start = time.perf_counter()
            network.eval()
            for loader in evaluated:
                with torch.no_grad():
                    sum(int((network(x).argmax(1) == y).sum()) for x, y in loader)
            network.train()
            times["evaluation"] += time.perf_counter() - start
    return {"all": time.perf_counter() - began, **times}


def our_run(given: argparse.Namespace, folder: Path, fast: bool, evaluate: str) -> dict[str, float]:
    """Ours: seconds in all, in evaluation, and in forward, backward and update."""
    began, times = time.perf_counter(), {"evaluation": 0.0, "network": 0.0}
    data = open_data(str(folder))
    config = RunConfig(
        data.name, (LEFT_OUT,), optimizer="adam", backbone=given.network, batch_size=given.batch,
        image_size=given.pixels, steps=given.steps, checkpoint_every=given.every, pretrained=given.pretrained,
        fast=fast,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as temporary:
        options = replace(RunOptions(evaluate=evaluate), cache=str(Path(temporary) / "cache"))
        parts = assemble(config, data, options)
        times["cache"] = time.perf_counter() - began
        whole = loop.make_record, loop.take_step
        loop.make_record = timed(loop.make_record, times, "evaluation")
        loop.take_step = timed(loop.take_step, times, "network")
        try:
            loop.train(parts, Path(temporary) / "run")
        finally:
            loop.make_record, loop.take_step = whole
    return {"all": time.perf_counter() - began, **times}


def timed(function: Callable[..., Any], times: dict[str, float], name: str) -> Callable[..., Any]:
    def called(*args: Any, **more: Any) -> Any:
        start = time.perf_counter()
        try:
            return function(*args, **more)
        finally:
            times[name] += time.perf_counter() - start

    return called


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="<domain>/<class>/<picture>, four domains")
    parser.add_argument("--network", default="efficientnet_lite0")
    parser.add_argument("--pretrained", action="store_true")
    parser.add_argument("--pixels", type=int, default=96)
    parser.add_argument("--batch", type=int, default=16, help="pictures of each of three domains")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--every", type=int, default=100)
    parser.add_argument("--threads", type=int, nargs="+", default=[1], help="one number or several, in turn")
    parser.add_argument("--workers", type=int, default=1, help="processes of each of the plain loop's loaders")
    parser.add_argument("--share", type=float, default=1.0, help="of the pictures of every class")
    parser.add_argument("--short", action="store_true", help=f"minutes instead of an hour: {SHORT}")
    given = parser.parse_args()
    if given.short:
        vars(given).update(SHORT)
        print(f"Reduced length: {SHORT}. Starting up weighs more here than in a whole run.")
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder if given.share == 1 else some_pictures(given.folder, given.share, Path(temporary))
        runs: dict[str, Callable[[], dict[str, float]]] = {
            "plain loop": lambda: plain_loop(given, folder),
            "--exact, all parts": lambda: our_run(given, folder, False, "all"),
            "--exact": lambda: our_run(given, folder, False, "used"),
            "default": lambda: our_run(given, folder, True, "used"),
        }
        for threads in given.threads:
            torch.set_num_threads(threads)
            peer = 0.0
            print(f"{f'threads: {threads}':20}{'seconds':>9}{'/ plain':>9}  of which")
            for name, run in runs.items():
                found = run()
                whole = found.pop("all")
                peer, found["other"] = peer or whole, whole - sum(found.values())
                parts = ", ".join(f"{key} {value:.1f}" for key, value in found.items())
                print(f"{name:20}{whole:9.1f}{whole / peer:9.2f}  {parts}", flush=True)


if __name__ == "__main__":
    main()
