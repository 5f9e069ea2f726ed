"""Sensitivity to p and beta: which numbers go where, and what is run for them."""

from __future__ import annotations

from paper.fig_sensitivity import averages_of, grid_of, logged_sensitivity, plot_grid, plot_line
from paper.figure_setup import panels
from paper.sourced import LOGGED

ROWS = {
    "SGD": (60.0, 2.0),
    "Adam": (70.0, 1.0),
    "GENIE p=0.0": (61.0, 1.0),
    "GENIE p=0.4": (64.0, 1.5),
    "GENIE beta=0.9": (62.0, 0.5),
    "GENIE beta=0.95": (64.0, 1.5),
}


def test_the_grid_is_both_lines_and_what_lies_off_them() -> None:
    grid = grid_of({**ROWS, "GENIE p=0.0 beta=0.9": (63.0, 0.25)})
    assert (grid.p, grid.beta) == ([0.0, 0.4], [0.9, 0.95])
    assert grid.cells == [[(63.0, 0.25), (61.0, 1.0)], [(62.0, 0.5), (64.0, 1.5)]]
    assert grid_of(ROWS).cells[0][0] is None


def test_the_logged_grid_is_a_cross() -> None:
    cells = grid_of(averages_of(logged_sensitivity(), LOGGED)).cells
    assert [sum(cell is not None for cell in row) for row in cells] == [1, 1, 5, 1, 1]


def test_what_is_drawn() -> None:
    _, (line, grid) = panels(1, 2, 6, 3)
    plot_line({**ROWS, "GENIE p=0.0 beta=0.9": (63.0, 0.25)}, "p", line)
    (container,) = line.containers
    assert container.lines[0].get_xydata().tolist() == [[0, 61.0], [1, 64.0]]
    ends = [segment.tolist() for segment in container.lines[2][0].get_segments()]
    assert ends == [[[0, 60.0], [0, 62.0]], [[1, 62.5], [1, 65.5]]]
    bands = sorted((float(p.get_y()), float(p.get_y() + p.get_height())) for p in line.patches)
    assert bands == [(58.0, 62.0), (69.0, 71.0)]
    assert line.get_legend_handles_labels()[1] == ["SGD", "Adam", "GENIE"]
    plot_grid(grid_of(ROWS), grid)
    assert [text.get_text() for text in grid.texts] == ["61.0\n± 1.0", "62.0\n± 0.5", "64.0\n± 1.5"]
