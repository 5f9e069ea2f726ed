"""Small trained runs whose model files hold every record, as ``--keep all`` leaves them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from genie_dg.bench.assemble import Parts, assemble
from genie_dg.bench.train import train
from genie_dg.data.augment import IMAGENET_MEAN, IMAGENET_STD
from genie_dg.data.domains import DomainSet, FileDomain
from genie_dg.runs import folder as files
from genie_dg.runs.record import Record, RunConfig, record_from


def contents(parts: Parts, data: DomainSet, record: Record, averaged: bool = False) -> dict[str, Any]:
    """The model file of a run as it is now."""
    pictures = isinstance(data.domains[0], FileDomain)
    shape = (3, parts.config.image_size) if pictures else data.domains[0].read(0).shape[:2]
    return {
        "format": 1,
        "algorithm": {name: tensor.clone() for name, tensor in parts.algorithm.state_dict().items()},
        "config": asdict(parts.config),
        "classes": list(data.classes),
        "domains": list(parts.domains),
        "sources": list(parts.sources),
        "channels": int(shape[0]),
        "size": int(shape[1]),
        "pictures": pictures,
        "mean": list(IMAGENET_MEAN) if shape[0] == 3 else None,
        "std": list(IMAGENET_STD) if shape[0] == 3 else None,
        "record": record.to_json(),
        "averaged": averaged,
        "versions": {"torch": str(torch.__version__)},
    }


def trained(config: RunConfig, data: DomainSet, out: Path, keep: str = "all") -> Parts:
    """Train a run in ``out`` and keep the weights of all records, or of the last one."""
    parts, folder = assemble(config, data), out / config.run_id

    kept: list[dict[str, Any]] = []

    def report(done: int, record: Record | None) -> None:
        if record is not None:
            kept.append(contents(parts, data, record))

    with torch.random.fork_rng():
        train(parts, folder, report)
    files.save_tensors(folder / files.MODEL, kept[-1])
    for one in kept if keep == "all" else ():
        files.save_tensors(folder / f"model-{one['record']['step']}.pt", one)
    if config.swad:  # the loop leaves the averaged weights in place
        record = record_from(json.loads((folder / files.AVERAGE).read_text()), len(parts.domains))
        files.save_tensors(folder / files.AVERAGE_MODEL, contents(parts, data, record, averaged=True))
    return parts
