"""Small trained runs that keep the weights of every record."""

from __future__ import annotations

from pathlib import Path

import torch

from genie_dg.bench.assemble import Parts, assemble
from genie_dg.bench.train import train
from genie_dg.data.domains import DomainSet
from genie_dg.runs.config import RunConfig


def trained(config: RunConfig, data: DomainSet, out: Path, keep: str = "all") -> Parts:
    """Train a run in ``out``."""
    parts = assemble(config, data)
    with torch.random.fork_rng():
        train(parts, out / config.run_id, keep=keep)
    return parts
