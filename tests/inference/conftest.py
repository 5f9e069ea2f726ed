"""Trained models that several tests look at."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import NamedTuple

import pytest
import torch

import genie_dg
from genie_dg.bench.assemble import Parts, assemble
from genie_dg.bench.train import train
from genie_dg.data.domains import DomainSet
from genie_dg.data.image_folders import open_folder
from genie_dg.inference.serve import Server
from genie_dg.runs.config import RunConfig
from tests.data.pictures import folder as write_folder


def trained(config: RunConfig, data: DomainSet, out: Path, keep: str = "all") -> Parts:
    """Train a run in ``out``."""
    parts = assemble(config, data)
    with torch.random.fork_rng():
        train(parts, out / config.run_id, keep=keep)
    return parts


class PictureRun(NamedTuple):
    """A finished run on a folder of pictures."""

    out: Path
    root: Path
    data: DomainSet
    config: RunConfig
    parts: Parts

    @property
    def folder(self) -> Path:
        return self.out / self.config.run_id


@pytest.fixture(scope="session")
def picture_run(tmp_path_factory: pytest.TempPathFactory) -> PictureRun:
    """Two classes in three domains, 32 pixels, a few steps; the weights of all records are kept."""
    base = tmp_path_factory.mktemp("pictures")
    root = write_folder(base / "art", ("ink", "oil", "pen"), each=6)
    data = open_folder(root)
    config = RunConfig(
        data.name,
        (2,),
        optimizer="adam",
        backbone="cnn",
        batch_size=4,
        steps=5,
        checkpoint_every=2,
        image_size=32,
        data_digest=data.digest(),
    )
    return PictureRun(base / "runs", root, data, config, trained(config, data, base / "runs"))


@pytest.fixture(scope="module")
def server(picture_run: PictureRun) -> Iterator[Server]:
    model = genie_dg.load_model(picture_run.folder / "model-4.pt")
    server = Server(model, 0)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()
