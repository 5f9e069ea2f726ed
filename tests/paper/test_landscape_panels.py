"""The pictures of the landscape: the levels of their contours, and equal conditions in every panel."""

from __future__ import annotations

import pytest

from paper.fig_landscape import LandscapeData, Path2D
from paper.figure_setup import panels
from paper.landscape_panels import contour_levels, plot_landscape


@pytest.fixture
def data() -> LandscapeData:
    """A bowl around (0, 0), another around (1, 0), two trajectories."""
    axis = [-2.0, -1.0, 0.0, 1.0, 2.0]
    source = [[1 + x * x + y * y for x in axis] for y in axis]
    unseen = [[2 + (x - 1) ** 2 + y * y for x in axis] for y in axis]
    paths = [
        Path2D("SGD (lr 1)", [(-1.0, 1.0), (0.0, 0.0)], [3.0, 1.0], [7.0, 3.0]),
        Path2D("Adam (lr 1)", [(-1.0, 1.0), (1.0, 0.0)], [3.0, 2.0], [7.0, 2.0]),
    ]
    return LandscapeData(axis, source, unseen, paths, [("0", -1.5, -1.5)], "60", "a note")


def test_levels_are_quantiles_and_dense_where_the_loss_is_low() -> None:
    values = [[float(10 * i + j) for j in range(10)] for i in range(10)] + [[100.0]]
    flat = [value for row in values for value in row]
    assert contour_levels([flat], count=4) == pytest.approx([100 * (k / 8) ** 2 for k in (1, 3, 5, 7)])


def test_a_flat_grid_has_one_level() -> None:
    assert contour_levels([[3.0, 3.0], [3.0, 3.0]]) == [3.0]


def test_every_panel_of_a_loss_has_the_same_axes_levels_and_colours(data: LandscapeData) -> None:
    _, axes = panels(1, 3, 9, 3)
    filled = [
        plot_landscape(data, "source", ax, only) for ax, only in zip(axes, ("", "SGD (lr 1)", "x"), strict=True)
    ]
    assert all(one.levels.tolist() == data.levels["source"] for one in filled)
    assert len({(one.norm.vmin, one.norm.vmax, one.cmap.name) for one in filled}) == 1
    assert len({(*ax.get_xlim(), *ax.get_ylim()) for ax in axes}) == 1
    labels = [ax.get_legend_handles_labels()[1] for ax in axes]
    assert labels == [["SGD (lr 1)", "Adam (lr 1)", "start"], ["SGD (lr 1)", "start"], ["start"]]


def test_the_file_has_all_that_is_drawn(data: LandscapeData) -> None:
    header, rows = data.table()
    assert header == ["label", "step", "x", "y", "source_loss", "unseen_loss"]
    assert rows[3] == ["Adam (lr 1)", 1, 1.0, 0.0, 2.0, 2.0]
    assert ["corner 0", "", -1.5, -1.5, "", ""] in rows
    assert [row[4] for row in rows if row[0] == "level" and row[5] == ""] == data.levels["source"]
    assert [row[5] for row in rows if row[0] == "level" and row[4] == ""] == data.levels["unseen"]
    assert sum(row[0] == "grid" for row in rows) == 25
