"""Curves: from records to numbers, from numbers to what is really drawn, and the files around them."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex

from genie_dg.results.figures import (
    COLOURS,
    Curve,
    CurveData,
    ReportError,
    curve_data,
    new_axes,
    plot_curves,
    write_csv,
)

matplotlib.use("Agg")


def record(step: int, value: Any, *ends: Any) -> dict[str, Any]:
    return {"step": step, "gsnr": value, **dict(zip(("gsnr_low", "gsnr_high"), ends, strict=False))}


RUNS = {
    "GENIE": [record(20, 0.5, 0.4, 0.7), record(10, 0.25, 0.1, 0.3), {"step": 15, "loss": 3.0}],
    "Adam": [record(10, 1), record(20, 2.0)],
}


# -- records to numbers ---


def test_points_are_picked_and_put_in_order() -> None:
    assert curve_data(RUNS, "gsnr") == CurveData(
        "gsnr",
        [
            Curve("GENIE", [10, 20], [0.25, 0.5], [0.1, 0.4], [0.3, 0.7]),
            Curve("Adam", [10, 20], [1.0, 2.0], [], []),
        ],
    )


def test_a_null_is_a_gap_and_the_later_record_of_a_step_counts() -> None:
    """As written by a monitor for a number that is not finite, and by a run that was resumed."""
    rows = [record(1, 2.0, None, None), record(2, 3.0, 1.0, 4.0), record(3, None), record(2, 5.0, 4.0, 6.0)]
    curve = curve_data({"a": rows}, "gsnr").curves[0]
    assert curve.steps == [1, 2, 3]
    assert curve.values[1] == 5.0
    assert math.isnan(curve.values[2])
    assert math.isnan(curve.low[0])
    assert (curve.low[1], curve.high[1]) == (4.0, 6.0)


BAD: list[tuple[dict[str, Any], str]] = [
    ({}, "There are no records to draw"),
    (
        {"a": [{"step": 1, "gsmr": 2.0}]},
        r"No record of 'a' has 'gsnr' \(they have gsmr\); did you mean 'gsmr'\?",
    ),
    ({"a": []}, r"No record of 'a' has 'gsnr' \(they have nothing\)\."),
    ({"a": [record(1, "high")]}, "'a' has a 'gsnr' that is not a number"),
]


@pytest.mark.parametrize(("records", "sentence"), BAD)
def test_what_is_refused(records: Any, sentence: str) -> None:
    with pytest.raises(ReportError, match=sentence):
        curve_data(records, "gsnr")


# -- numbers to artists ---


def bands(ax: Axes) -> list[PolyCollection]:
    return [artist for artist in ax.collections if isinstance(artist, PolyCollection)]


def test_what_is_drawn() -> None:
    ax = new_axes()
    assert plot_curves(curve_data(RUNS, "gsnr"), ax) is ax
    genie, adam = ax.get_lines()
    assert genie.get_xydata().tolist() == [[10, 0.25], [20, 0.5]]
    assert adam.get_xydata().tolist() == [[10, 1], [20, 2]]
    assert [to_hex(line.get_color()).upper() for line in (genie, adam)] == list(COLOURS[:2])
    (band,) = bands(ax)
    corners = {tuple(corner) for corner in band.get_paths()[0].vertices.tolist()}
    assert corners == {(10, 0.1), (10, 0.3), (20, 0.4), (20, 0.7)}
    assert to_hex(band.get_facecolor()[0]).upper() == COLOURS[0]
    assert 0 < band.get_facecolor()[0][3] < 0.5
    legend = ax.get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["GENIE", "Adam"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("step", "gsnr")


def test_many_curves_can_be_told_apart() -> None:
    many = {f"run {i}": [record(1, float(i)), record(2, float(i))] for i in range(4 * len(COLOURS))}
    lines = plot_curves(curve_data(many, "gsnr")).get_lines()
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == len(many)


def test_a_gap_is_a_gap() -> None:
    ax = plot_curves(
        curve_data({"a": [record(1, 0.0, -1, 1), record(2, math.nan), record(3, 1.0, 0, 2)]}, "gsnr")
    )
    ax.figure.draw_without_rendering()
    assert math.isnan(ax.get_lines()[0].get_ydata()[1])
    steps = {corner[0] for path in bands(ax)[0].get_paths() for corner in path.vertices.tolist()}
    assert steps == {1, 3}


def test_a_figure_is_saved(tmp_path: Path) -> None:
    file = tmp_path / "curves.png"
    plot_curves(curve_data(RUNS, "gsnr")).figure.savefig(file)
    assert file.read_bytes().startswith(b"\x89PNG")
    pixels = matplotlib.image.imread(file)
    assert any((abs(pixels[..., :3] - matplotlib.colors.to_rgb(COLOURS[1])).max(-1) < 0.01).flatten())


# -- files ---


def test_csv_beside_the_figure(tmp_path: Path) -> None:
    data = curve_data({'a, "b"': RUNS["GENIE"], "Adam": RUNS["Adam"]}, "gsnr")
    path = write_csv(tmp_path / "new" / "figure.pdf", data)
    assert path == tmp_path / "new" / "figure.csv"
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["label", "step", "gsnr", "gsnr_low", "gsnr_high"]
    assert rows[0] == ['a, "b"', "10", "0.25", "0.1", "0.3"]
    assert rows[2:] == [["Adam", "10", "1.0", "", ""], ["Adam", "20", "2.0", "", ""]]
