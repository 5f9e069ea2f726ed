"""The update heatmaps: layers, what is recorded of each kind, and the file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from paper.fig_heatmap import heatmaps_data, heights, layers_of
from paper.figure_setup import figure_setup
from paper.request import Request

SIZES = {
    "featurizer.network._stem.weight": 3,
    "featurizer.network._blocks.0._conv.weight": 8,
    "featurizer.network._blocks.0._bn.weight": 2,
    "featurizer.network._blocks.0._bn.bias": 2,
    "featurizer.network._blocks.1._conv.weight": 5,
    "head.weight": 4,
    "head.bias": 1,
}


def test_layers_are_as_fine_as_their_number_allows() -> None:
    assert [layer.name for layer in layers_of(SIZES)] == [
        "stem", "blocks 0 conv", "blocks 0 bn", "blocks 1 conv", "head",
    ]  # fmt: skip
    assert [layer.name for layer in layers_of(SIZES, most=4)] == ["stem", "blocks 0", "blocks 1", "head"]
    assert [layer.name for layer in layers_of(SIZES, most=3)] == ["stem", "blocks", "head"]


def test_groups_of_a_layer_cover_its_parameters() -> None:
    stem, first, second, head = layers_of(SIZES, groups=4, most=4)
    assert stem.edges == (0, 1, 2, 3)  # no more groups than parameters
    assert first.edges == (3, 6, 9, 12, 15)
    assert second.edges == (15, 16, 17, 18, 20)
    assert head.edges == (20, 21, 22, 23, 25)
    assert heights([stem, head])[:5] == [0.0, pytest.approx(1 / 3), pytest.approx(2 / 3), 1.0, 1.25]


def test_one_training_run_gives_both_kinds(tmp_path: Path) -> None:
    setup = figure_setup(Request("smoke", tmp_path), "digits", 500, "VLCS")
    config = replace(setup.config, steps=3)
    data = heatmaps_data(replace(setup, config=config, optimizers=setup.optimizers[:1]), points=3)
    assert list(data.maps) == [("weights", "SGD"), ("gradients", "SGD")]
    weights, gradients = data.maps.values()
    assert weights.steps == gradients.steps == (1, 2, 3)
    assert not any(gradients.values[0])  # one gradient has not changed yet
    assert max(gradients.values[1]) == max(weights.values[0]) == 1.0
    assert {layer.name for layer in data.layers} == {"hidden1 0", "hidden2 0", "output", "head"}
