"""OSGR over training: windows of steps, trials pooled, and the published formula in every step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from paper.fig_osgr import Size, combine, osgr_data, windows
from paper.figure_setup import OptimizerSetup, figure_setup
from paper.request import Request


def test_a_window_adds_gains_and_averages_the_rest() -> None:
    rows = [{"step": t, "as_published": float(t)} for t in range(1, 8)]
    rows[1] |= {"gain_on_d": 2.0, "gain_on_other": 1.0}
    rows[2] |= {"gain_on_d": 4.0, "gain_on_other": -1.0, "theorem_osgr": 0.5}
    first, second = windows(rows, 3)  # step 7 is no whole window
    gains = {"gain_on_d": 6.0, "gain_on_other": 0.0}
    assert first == {"step": 1, "as_published": 2.0, **gains, "theorem_osgr": 0.5}
    assert second == {"step": 4, "as_published": 5.0}


def test_trials_are_pooled_by_window() -> None:
    trials = [
        [{"step": 5, "gain_on_d": 1.0, "gain_on_other": 0.5, "as_published": 0.9, "theorem_osgr": 0.4}],
        [{"step": 5, "gain_on_d": 3.0, "gain_on_other": 1.5, "as_published": 0.9, "theorem_osgr": 0.2}],
    ]
    (one,) = combine(trials)
    assert (one["step"], one["osgr"], one["osgr_low"], one["osgr_high"]) == (5, 0.5, 0.5, 0.5)
    assert (one["as_published"], one["as_published_low"]) == (0.9, 0.9)
    assert one["theorem_osgr"] == pytest.approx(0.3)


def test_sam_of_no_radius_has_the_curves_of_the_optimizer_inside_it(tmp_path: Path) -> None:
    setup = figure_setup(Request("smoke", tmp_path), "digits", 500, "VLCS")
    sgd = next(one for one in setup.optimizers if one.label == "SGD").having(momentum=0.9)
    around = OptimizerSetup("SAM", "sam", {"base": "sgd", "lr": sgd.settings["lr"], "rho": 0.0})
    config = replace(setup.config, steps=4)
    data = osgr_data(replace(setup, config=config, optimizers=(sgd, around)), Size(2, 2, 2, 16))
    for curves in data.curves.values():
        inside, sam = curves.curves
        assert sam.values == pytest.approx(inside.values)
