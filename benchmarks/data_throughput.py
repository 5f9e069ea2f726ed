"""Images per second: this package against torchvision's ImageFolder and DataLoader, on the same cores.

    python benchmarks/data_throughput.py FOLDER [--images 1500] [--rounds 3]

FOLDER is ``<domain>/<class>/<picture>``. The peer is what DomainBed does: ``ImageFolder`` with DomainBed's
transforms at 224 pixels in a ``DataLoader``, here with one worker process for each core. Both are timed in turn
in every round; the first batch of each, which starts the workers, is not counted. Medians over rounds. Ours are
made as runs make them: with ``engine="opencv"`` channels last, and as bytes where they go to a graphics card,
which scales them (the card's share of the work is not in these numbers).
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, DataLoader, RandomSampler
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

from genie_dg.data.augment import Recipe
from genie_dg.data.cache import Cache, EvalSpec, TrainSpec, open_cache
from genie_dg.data.domains import FileDomain
from genie_dg.data.image_folders import open_folder
from genie_dg.data.loaders import Evaluation, Training, ahead
from genie_dg.data.place import Destination, Scale
from genie_dg.data.splits import Sampler
from genie_dg.facts import IMAGENET_MEAN, IMAGENET_STD

LAST = Destination(layout=torch.channels_last)
"""Where runs with the OpenCV engine get their batches on a CPU."""


class Travelling(Destination):
    """Bytes on their way to a device that scales them: what this computer has to do."""

    def brought(self, samples: Tensor, labels: Tensor, scale: Scale | None = None) -> tuple[Tensor, Tensor]:
        return samples, labels


BYTES = Travelling(layout=torch.channels_last, as_bytes=True)

FINISH = [T.ToTensor(), T.Normalize(IMAGENET_MEAN, IMAGENET_STD)]
EVAL = T.Compose([T.Resize((224, 224)), *FINISH])
CROP = T.RandomResizedCrop(224, scale=(0.7, 1.0))
TRAIN = T.Compose(
    [CROP, T.RandomHorizontalFlip(), T.ColorJitter(0.3, 0.3, 0.3, 0.3), T.RandomGrayscale(), *FINISH]
)


def rate(batches: Iterable[Any], images: int) -> float:
    """Images per second after the first batch."""
    counted, start = 0, 0.0
    for number, batch in enumerate(batches):
        if number == 0:
            start = time.perf_counter()
            continue
        counted += len(batch[0])
        if counted >= images:
            break
    return counted / (time.perf_counter() - start)


def waiting(training: Training, network: float = 0.03, steps: int = 40) -> float:
    """The share of a step spent waiting for its batches when the network, elsewhere, takes ``network`` seconds.

    The steps are those of `genie_dg.bench.train`, which has the next batches made while the network works.
    """
    waited = []
    with ahead(training, steps) as batches:
        for step in range(steps):
            began = time.perf_counter()
            batches(step)
            waited.append(time.perf_counter() - began)
            time.sleep(network)
    late = statistics.mean(waited[1:])
    return late / (late + network)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, default=1500)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    domains = [d for d in open_folder(args.folder).domains if isinstance(d, FileDomain)]
    workers, count = torch.get_num_threads(), sum(len(d) for d in domains)
    print(
        f"{count} pictures in {len(domains)} domains; {workers} workers or threads; torch {torch.__version__}"
    )
    with tempfile.TemporaryDirectory() as folder:
        caches: dict[str, list[Cache]] = {}
        for name, spec in (("evaluation", EvalSpec(224)), ("training", TrainSpec())):
            start = time.perf_counter()
            caches[name] = [open_cache(d, spec, folder) for d in domains]
            size = sum(c.data.size for c in caches[name]) / 2**20
            print(f"{name} cache: {time.perf_counter() - start:.1f} s, {size:.0f} MB", flush=True)
        plain, augmented = (
            ConcatDataset([ImageFolder(str(d.root), transform) for d in domains]) for transform in (EVAL, TRAIN)
        )
        samplers = [Sampler(np.arange(len(d)), 32, seed=0, domain=i) for i, d in enumerate(domains)]
        training = Training(domains, samplers, recipe=Recipe(), caches=caches["training"])
        fast, fast_bytes = (
            Training(domains, samplers, recipe=Recipe(engine="opencv"), caches=caches["training"], place=place)
            for place in (LAST, BYTES)
        )
        uncached = Training(domains, samplers, recipe=Recipe())
        drawn = RandomSampler(augmented, replacement=True, num_samples=10**6)
        shuffled = RandomSampler(plain)  # all domains from the start, as below
        share = args.images // len(domains) + 48
        few = [np.random.default_rng(0).permutation(len(d))[:share] for d in domains]

        def evaluation(given: list[Cache] | list[None], place: Destination | None = None) -> Iterator[Any]:
            for d, positions, cache in zip(domains, few, given, strict=True):
                yield from Evaluation(d, positions, cache=cache, place=place or Destination())

        contenders = {
            "evaluation, ImageFolder": lambda: DataLoader(plain, 64, sampler=shuffled, num_workers=workers),
            "evaluation, cache": lambda: evaluation(caches["evaluation"]),
            "evaluation, cache, last": lambda: evaluation(caches["evaluation"], LAST),
            "evaluation, cache, bytes": lambda: evaluation(caches["evaluation"], BYTES),
            "evaluation, decoding": lambda: evaluation([None] * len(domains)),
            "training, ImageFolder": lambda: DataLoader(augmented, 32, sampler=drawn, num_workers=workers),
            "training, cache": lambda: (batch for batches in training for batch in batches),
            "training, cache, opencv": lambda: (batch for batches in fast for batch in batches),
            "training, opencv, bytes": lambda: (batch for batches in fast_bytes for batch in batches),
            "training, decoding": lambda: (batch for batches in uncached for batch in batches),
        }
        rates: dict[str, list[float]] = {name: [] for name in contenders}
        for _ in range(args.rounds):
            for name, make in contenders.items():
                rates[name].append(rate(make(), args.images))
        for name, values in rates.items():
            peer = statistics.median(rates[name.split(",")[0] + ", ImageFolder"])
            middle = statistics.median(values)
            print(f"{name:26s} {middle:8.0f} images/s   {middle / peer:5.1f} x ImageFolder")
        for pixels, batch in ((96, 16), (224, 16), (224, 32)):
            small = [Sampler(np.arange(len(d)), batch, seed=0, domain=i) for i, d in enumerate(domains[:3])]
            made = Training(
                domains[:3],
                small,
                recipe=Recipe(pixels, engine="opencv"),
                caches=caches["training"][:3],
                place=LAST,
            )
            share_of_step = statistics.median(waiting(made) for _ in range(args.rounds))
            print(
                f"waiting for 3 x {batch} pictures of {pixels} pixels, a network of 30 ms: {share_of_step:.1%}"
            )


if __name__ == "__main__":
    main()
