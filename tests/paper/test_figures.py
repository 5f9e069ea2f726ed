"""The figures: their numbers first, then that a file comes out."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from genie_dg.data.domains import TensorDomain
from genie_dg.data.registry import open_data
from paper import fig_landscape
from paper.__main__ import main
from paper.fig_landscape import Patch
from paper.fig_osgr import pooled
from paper.fig_umap import embedding, umap
from paper.figure_setup import OptimizerSetup, figure_setup, halves
from paper.registry import PAPER, PaperRow
from paper.request import PaperError, Request
from paper.runs import train_in_memory

FIGURES = [PAPER[name] for name in ("osgr", "heatmap", "landscape", "umap")]


@pytest.mark.parametrize("row", FIGURES, ids=lambda row: row.name)
def test_the_papers_scale_asks_for_data(row: PaperRow, tmp_path: Path) -> None:
    with pytest.raises(PaperError, match="--root"):
        row.make(Request("paper", tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_umap_keeps_clusters_together() -> None:
    assert embedding("cpu")[0] == "UMAP"  # of the extra "umap", which "dev" has
    stream = torch.Generator().manual_seed(0)
    centres = 20 * torch.eye(3, 8).repeat_interleave(30, 0)
    places = torch.tensor(umap(centres + torch.randn(90, 8, generator=stream)))
    labels = torch.arange(3).repeat_interleave(30)
    distances = torch.cdist(places, places).fill_diagonal_(torch.inf)
    assert torch.equal(labels[distances.argmin(1)], labels)


def test_halves_share_no_sample() -> None:
    data = open_data("digits")
    first, second = halves(data)
    for whole, a, b in zip(data.domains, first.domains, second.domains, strict=True):
        assert isinstance(whole, TensorDomain)
        assert isinstance(a, TensorDomain)
        assert isinstance(b, TensorDomain)
        assert len(a) + len(b) == len(whole)
        assert torch.equal(a.images, whole.images[::2])
        assert torch.equal(b.images, whole.images[1::2])
        assert b.labels.tolist() == whole.labels[1::2].tolist()


def test_training_in_memory_is_what_the_benchmark_does(tmp_path: Path) -> None:
    from genie_dg.bench.assemble import assemble
    from genie_dg.bench.train import train

    setup = figure_setup(Request("smoke", tmp_path), "digits", 500, "VLCS")
    config = replace(OptimizerSetup("GENIE", "genie", {"lr": 0.1}).on(setup.config), steps=3)
    before = torch.get_rng_state()
    seen = list(train_in_memory(config, setup.data))
    assert torch.equal(before, torch.get_rng_state())
    assert [step for step, _ in seen] == [0, 1, 2, 3]
    parts = seen[-1][1]
    trained = assemble(config, setup.data)
    train(trained, tmp_path / "run")
    for a, b in zip(parts.algorithm.parameters(), trained.algorithm.parameters(), strict=True):
        assert torch.equal(a, b)


def test_the_corners_of_the_patch_are_the_networks() -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    corners = [{n: torch.randn_like(p) for n, p in model.named_parameters()} for _ in range(4)]
    patch, x, y = Patch(model, corners), torch.randn(6, 3), torch.randint(2, (6,))
    c = fig_landscape.CORNER
    for place, weights in zip(((-c, -c), (c, -c), (-c, c), (c, c)), corners, strict=True):
        model.load_state_dict(weights)
        want = torch.nn.functional.cross_entropy(model(x), y)
        torch.testing.assert_close(patch.loss(torch.tensor(place), x, y), want)


def test_the_command_knows_fashion(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["landscape", "--data", "FashionMNIST", "--root", str(tmp_path), "--out", str(tmp_path / "out")]
    assert main(words) == 2  # the folder is empty, and that is what it says
    said = capsys.readouterr().err
    assert "has no file train-images-idx3-ubyte" in said
    assert "the name of a data set" not in said


def test_pooling_is_a_ratio_of_sums_with_an_interval_that_covers() -> None:
    assert pooled([1.0, 3.0], [2.0, 6.0]) == (0.5, 0.5, 0.5)  # the ratio of every trial, whatever its size
    assert all(map(math.isnan, pooled([1.0, 1.0], [1.0, -2.0])))
    stream = torch.Generator().manual_seed(0)
    covered = 0
    for _ in range(400):
        b = 1 + 0.3 * torch.randn(8, generator=stream)
        a = 0.4 * b + 0.3 * torch.randn(8, generator=stream)
        _, low, high = pooled(a.tolist(), b.tolist())
        covered += low < 0.4 < high
    assert 0.9 < covered / 400 < 0.985
