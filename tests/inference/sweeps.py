"""A small sweep, complete for all three selections, whose runs kept the weights of every record."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import torch

from genie_dg.data.domains import DomainSet, TensorDomain
from genie_dg.runs.config import RunConfig

from .models import trained


def blobs(each: int = 40) -> DomainSet:
    """Three domains of 4 x 4 pixels; a class is a bright corner, each domain has its own noise."""
    domains = []
    for k, (name, noise) in enumerate((("clean", 40), ("noisy", 90), ("grim", 140))):
        random = np.random.default_rng(k)
        labels = np.arange(each) % 3
        images = random.normal(100, noise, (each, 1, 4, 4))
        images[np.arange(each), 0, labels, labels] += 120
        pixels = torch.from_numpy(images.clip(0, 255).astype(np.uint8))
        domains.append(TensorDomain(name, pixels, labels.astype(np.int64)))
    return DomainSet("blobs", ("one", "two", "three"), tuple(domains))


def sweep(
    out: Path,
    data: DomainSet,
    *,
    trials: int = 2,
    algorithms: tuple[str, ...] = ("ERM",),
    swad: bool = False,
    pairs: bool = True,
) -> list[RunConfig]:
    """Each domain is left out, and with ``pairs`` each two; two draws."""
    left_out = [(k,) for k in range(3)] + (list(combinations(range(3), 2)) if pairs else [])
    configs = [
        RunConfig(
            data.name,
            test,
            algorithm,
            "adam",
            "cnn" if algorithm == "ARM" else "mlp",
            optimizer_settings={"lr": lr},
            batch_size=6,
            steps=13,
            checkpoint_every=4,
            trial_seed=trial,
            hparams_seed=draw,
            swad=swad,
            oracle="best",
        )
        for algorithm in algorithms
        for test in left_out
        for trial in range(trials)
        for draw, lr in enumerate((1e-3, 3e-3))
    ]
    for config in configs:
        trained(config, data, out)
    return configs
