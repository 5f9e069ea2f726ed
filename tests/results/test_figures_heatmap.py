"""The heatmap of updates: the numbers, and the cells, names and colours that are really drawn."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh

from genie_dg.results.figures import ReportError, heatmap_data, new_axes, plot_update_heatmap, write_csv

matplotlib.use("Agg")

STEPS, EDGES = [10, 20, 50], [0, 3, 7]
VALUES = [[1.0, 4.0], [0.0, 0.0], [6.0, 3.0]]
NAMES = {"body.weight": 0, "body.bias": 4, "head.weight": 5}


def mesh_of(ax: Axes) -> QuadMesh:
    (mesh,) = [artist for artist in ax.collections if isinstance(artist, QuadMesh)]
    return mesh


# -- numbers ---


def test_rows_are_divided_by_their_maximum() -> None:
    data = heatmap_data(STEPS, VALUES, EDGES, NAMES)
    assert data.values == [[0.25, 1.0], [0.0, 0.0], [1.0, 0.5]]
    assert (data.start, data.steps, data.edges) == (0, STEPS, EDGES)
    assert data.sections == list(NAMES.items())
    assert data.normalised


def test_rows_can_stay_as_they_are() -> None:
    data = heatmap_data(STEPS, VALUES, EDGES, normalise=False, start=5)
    assert (data.values, data.start, data.sections, data.normalised) == (VALUES, 5, [], False)


def test_many_tensors_are_put_together_by_name() -> None:
    names = {
        f"layer{i}.{j}.{kind}": 100 * i + 10 * j + k
        for i in (1, 2, 3)
        for j in range(4)
        for k, kind in enumerate("wb")
    }
    assert heatmap_data([1], [[1.0]], [0, 400], names).sections == [
        (f"layer{i}.{j}", 100 * i + 10 * j) for i in (1, 2, 3) for j in range(4)
    ]
    more = {**names, "head.weight": 400}
    coarse = [("layer1", 100), ("layer2", 200), ("layer3", 300), ("head", 400)]
    assert heatmap_data([1], [[1.0]], [0, 500], more).sections == coarse
    backwards = dict(reversed(more.items()))
    assert heatmap_data([1], [[1.0]], [0, 500], backwards).sections == coarse


BAD: list[tuple[dict[str, Any], str]] = [
    ({"steps": [1, 2]}, "There are 2 steps for 3 rows; give one step for each row"),
    ({"steps": [], "values": []}, "There are 0 steps for 0 rows"),
    ({"edges": [0, 3, 5, 7]}, "There are 4 edges, so each row must hold one number less"),
    ({"edges": [0]}, "There are 1 edges"),
    ({"steps": [10, 30, 20]}, "The steps do not increase"),
    ({"edges": [0, 7, 7]}, "The edges do not increase"),
    (
        {"values": [[1.0, 2.0], [1.0, -1.0], [0.0, 0.0]]},
        "The row of step 20 has a negative or non-finite update",
    ),
    ({"values": [[1.0, 2.0], [1.0, 1.0], [0.0, math.nan]]}, "The row of step 50 has a negative or non-finite"),
    ({"start": 10}, "start=10 is not before the first step 10"),
]


@pytest.mark.parametrize(("change", "sentence"), BAD)
def test_what_is_refused(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ReportError, match=sentence):
        heatmap_data(**{"steps": STEPS, "values": VALUES, "edges": EDGES, **change})


# -- artists ---


def test_cells_lie_at_their_steps_and_ids() -> None:
    ax = new_axes()
    assert plot_update_heatmap(heatmap_data(STEPS, VALUES, EDGES, NAMES), ax) is ax
    mesh = mesh_of(ax)
    corners = mesh.get_coordinates()
    assert corners[0, :, 0].tolist() == [0, 10, 20, 50]
    assert corners[:, 0, 1].tolist() == EDGES
    assert np.asarray(mesh.get_array()).tolist() == [[0.25, 0.0, 1.0], [1.0, 0.0, 0.5]]
    assert mesh.get_clim() == (0.0, 1.0)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("step", "parameter ID")


def test_parts_of_the_model_are_named_where_there_is_room() -> None:
    names = {"stem": 0, "body": 1, "head": 60}
    ax = plot_update_heatmap(heatmap_data([1], [[1.0, 1.0]], [0, 50, 100], names))
    ax.figure.draw_without_rendering()
    (side,) = ax.child_axes
    shown = [
        (tick.get_text(), place) for tick, place in zip(side.get_yticklabels(), side.get_yticks(), strict=True)
    ]
    assert shown == [("body", 30.5), ("head", 80.0)]
    assert side.get_yticks(minor=True).tolist() == [0, 1, 60]
    assert side.get_window_extent().x1 <= ax.get_window_extent().x1 + 1  # a side of these axes
    assert plot_update_heatmap(heatmap_data([1], [[1.0]], [0, 1])).child_axes == []


def test_nothing_moved_is_drawn_too(tmp_path: Path) -> None:
    for normalise in (True, False):
        ax = plot_update_heatmap(heatmap_data([1, 2], [[0.0], [0.0]], [0, 1], normalise=normalise))
        ax.figure.savefig(tmp_path / "zeros.png")
        colours = {tuple(rgb) for rgb in mesh_of(ax).get_facecolors().tolist()}
        assert colours == {matplotlib.colormaps["viridis"](0.0)}


def test_csv_has_one_row_for_each_cell(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "heatmap.png", heatmap_data(STEPS, VALUES, EDGES))
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["step", "first_id", "last_id", "share_of_largest_update"]
    assert rows[:2] == [["10", "0", "2", "0.25"], ["10", "3", "6", "1.0"]]
    assert len(rows) == 6
    assert heatmap_data(STEPS, VALUES, EDGES, normalise=False).table()[0][3] == "mean_absolute_update"
