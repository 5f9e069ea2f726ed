"""What the committed files of the authors' logs say, against the paper and by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from paper.logged import committed
from paper.logged_page import agreement, curves_of, make_logged
from paper.published import PUBLISHED, lines_of
from paper.request import Request
from paper.sourced import LOGGED, logged, logged_averages

LEVELS = {"PACS": 118, "VLCS": 117, "OfficeHome": 120}
"""Cells of Tables 14 to 16 that the logs give; the others are averages that Table 3 prints otherwise."""


def test_the_source_is_named() -> None:
    assert committed().commit == "9785479d4d9ee5d3f75524b5860ff10aa1ba7634"
    assert (committed().logs, committed().finished) == (502, 500)


def test_the_tables_of_times_are_single_runs_of_the_logs() -> None:
    """All 360 times and accuracies of Tables 14 to 16, but five averages that are listed."""
    rows = {row[2]: row for row in agreement(committed())[1] if row[1] == "iterations"}
    assert {dataset: int(row[4]) for dataset, row in rows.items()} == LEVELS
    assert {row[3] for row in rows.values()} == {"120"}
    listed = [i for i in lines_of("inconsistencies.csv") if (i["kind"], i["place"]) == ("detail", "Table 3")]
    assert len(listed) == 360 - sum(LEVELS.values())


def test_the_ablation_is_single_runs_of_the_logs() -> None:
    table = PUBLISHED["ablation", "PACS"]
    for row in list(table.rows)[1:]:
        for column in table.columns[:-1]:
            cell = committed().cell("ablation", "PACS", row, column)
            assert cell.runs == 1
            assert cell.value == pytest.approx(table.cell(row, column).value, abs=0.0551)


def test_with_one_source_the_others_are_single_runs_and_coral_is_erm() -> None:
    main = PUBLISHED["single-source", ""]
    for dataset in main.columns[:-1]:
        for row in ("Adam", "SGD", "SAM"):
            cell = committed().cell("single-source", dataset, f"ERM+{row}")
            assert (cell.runs, cell.batch) == (4, "32")
            assert cell.value == pytest.approx(main.cell(row, dataset).value, abs=0.06)
        for row in ("Adam", "SGD"):
            twins = [committed().cell("single-source", dataset, f"{a}+{row}").value for a in ("ERM", "CORAL")]
            assert twins[0] == twins[1]


def test_osgr_starts_at_what_the_batch_says_and_rises_with_vanishing_gradients() -> None:
    """GENIE is above the others at the start where its batch is larger, and below where it is smaller."""
    batches = {}
    for domain in ("Caltech", "LabelMe", "SUN", "VOC"):
        sgd, adam, genie, sam = curves_of(committed(), domain)
        assert (sgd.batch, adam.batch, sam.batch) == (32, 32, 32)
        batches[domain] = genie.batch
        for curve in (sgd, adam, sam, genie):
            assert curve.values[0] == pytest.approx(1 - 1 / curve.pictures, abs=5e-5)
        for curve in (sgd, sam):  # of which all steps of a window are alike
            added = 1 / (1 - curve.values[-1]) - curve.pictures  # 1e-7 over the mean square
            assert math.sqrt(1e-7 / added) == pytest.approx(curve.sizes[-1], rel=0.15)
        for other in (sgd, adam, sam):
            if genie.batch < 32:
                assert max(genie.values) < min(other.values)
            if genie.batch > 32:
                assert genie.values[0] > other.values[0] + 0.001
        assert genie.sizes[-1] < 0.15 * genie.sizes[0]
        assert adam.sizes[-1] < 0.2 * adam.sizes[0]
    assert batches == {"Caltech": 32, "LabelMe": 38, "SUN": 23, "VOC": 13}


def test_numbers_of_tables_are_marked_as_logged() -> None:
    numbers = logged("single-source", "PACS", prefix="x ", drop="ERM+")
    assert {number.origin for number in numbers} == {LOGGED}
    assert {number.place for number in numbers} == {"00ssum/GENIE at 9785479"}
    assert [n.text for n in numbers if n.row == "SAM"] == ["70.1", "75.6", "42.5", "42.7", "57.7"]
    places = ["x Art", "x Cartoon", "x Photo", "x Sketch", "x Avg"]
    assert [n.column for n in numbers if n.row == "SAM"] == places
    assert {n.column for n in logged_averages("optimizers")} == set(PUBLISHED["optimizers", ""].columns[:-1])


def test_the_page_and_the_figure(tmp_path: Path) -> None:
    result = make_logged(Request("smoke", tmp_path))
    assert "| SAM, defaults   |  82.4 (4 runs) | 79.4 (4 runs) | 69.4 (4 runs) |" in result.text
    assert {path.suffix for path in result.files} == {".md", ".csv", ".png", ".pdf"}
    assert (tmp_path / "osgr-logged.csv").read_text().count("\n") == 1 + 16 * 75
