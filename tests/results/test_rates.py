"""The picture of a search for the learning rate."""

from __future__ import annotations

import math
from pathlib import Path

from genie_dg.optim import SuggestedRate
from genie_dg.results.figures import new_figure
from genie_dg.results.rates import plot_rates

LOSSES = [0.9, 0.4, 5.0, math.inf]
DATA = SuggestedRate(0.1, "", [0.01, 0.1, 1.0, 10.0], LOSSES, 1.0, [0.001, 0.1, 10.0], [1.0, 0.9, 50.0], 9)


def test_points_crosses_and_the_choice() -> None:
    ax = plot_rates(DATA)
    lines = {line.get_label(): line for line in ax.get_lines()}
    assert list(lines["short trainings"].get_xdata()) == [0.01, 0.1, 1.0]
    drawn = list(lines["short trainings"].get_ydata())
    assert drawn[:2] == [0.9, 0.4]
    assert 1.0 < drawn[2] < ax.get_ylim()[1]  # above the view, so drawn at its edge
    assert list(lines["exploded"].get_xdata()) == [10.0]
    assert list(lines["lr 0.1"].get_xdata()) == [0.1, 0.1]
    assert ax.get_xscale() == "log"


def test_nothing_finite_and_nothing_gained(tmp_path: Path) -> None:
    for losses in ([math.inf, math.inf], [0.0, 0.0], [2.0, 3.0]):
        figure = new_figure(4, 3)
        plot_rates(SuggestedRate(1.0, "", [1.0, 2.0], losses, 0.0, [1.0], [0.0], 9), figure.add_subplot())
        figure.savefig(tmp_path / "x.png")
