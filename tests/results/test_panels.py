"""The figures of the page: what is drawn where, and what the markup may hold."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from genie_dg.results import panels
from genie_dg.results.figures import Curve, CurveData
from genie_dg.results.panels import Dot, Mark

EVIL = "<img src=x onerror=alert(1)>&\"'$x$ 中 \ud800"


def tree(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg.encode("utf-8", "replace"))


def everything() -> list[str]:
    curve = Curve("a", [0, 10], [0.0, 100.0], [0.0, 90.0], [5.0, 100.0])
    marks = [Mark(1e-3, 50.0, 0, False, "a"), Mark(1.0, 60.0, 6, True, "b")]
    rows = [Dot(0, "a", 50.0, 49.0, 51.0, "50"), Dot(1, "b", None, None, None, "missing")]
    return [
        panels.lines("lines", CurveData("x", [curve]), [0], (0.0, 100.0)),
        panels.points_figure("points", marks, "lr", True),
        panels.dots("dots", rows, (0.0, 99.0), "x"),
    ]


def test_a_figure_asks_for_nothing_and_has_a_name() -> None:
    for svg in everything():
        root = tree(svg)
        assert root.attrib.keys() == {"viewBox", "role", "aria-label"}
        for forbidden in ("http", "url(", "<style", "<metadata", "clip-path", "DejaVu", "xmlns"):
            assert forbidden not in svg
        assert not re.search(r":#[0-9a-f]{6}", svg)


def test_equal_numbers_give_equal_text_and_identities_are_of_one_figure() -> None:
    assert everything() == everything()
    found = [id_ for svg in everything() for id_ in re.findall(r' id="(\w+)"', svg)]
    assert len(found) == len(set(found)) > 3
    other = panels.points_figure("other", [Mark(1e-3, 50.0, 0, False, "a")], "lr")
    assert not set(re.findall(r' id="(\w+)"', other)) & set(found)


def test_points_lie_where_they_belong() -> None:
    left, width = 72 * panels._LEFT, 72 * (panels._WIDTH - panels._LEFT - panels._RIGHT)
    top, height = 72 * panels._TOP, 72 * (panels._HEIGHT - panels._TOP - panels._BOTTOM)
    marks = [Mark(x, y, 0, False, "") for x, y in ((0.001, 0.0), (0.01, 25.0), (0.1, 100.0))]
    uses = [use.attrib for use in tree(panels.points_figure("p", marks, "lr", True, (0.0, 100.0))).iter("use")]
    assert [float(use["y"]) for use in uses] == pytest.approx(
        [top + height, top + 0.75 * height, top], abs=0.02
    )
    low, middle, high = (float(use["x"]) for use in uses)
    assert middle == pytest.approx((low + high) / 2, abs=0.02)  # a logarithmic axis
    assert left < low < high < left + width


def test_chosen_runs_differ_in_shape_and_say_who_they_are() -> None:
    marks = [Mark(1.0, 1.0, 2, False, "first"), Mark(2.0, 2.0, 2, True, "second")]
    root = tree(panels.points_figure("p", marks, "x"))
    assert [title.text for title in root.iter("title")] == ["first", "second"]
    shapes = {use.get("href") for use in root.iter("use")}
    assert len(shapes) == 2


def test_words_of_runs_stay_words() -> None:
    dots = tree(panels.dots(EVIL, [Dot(0, EVIL, 1.0, None, None, "1.0")], (0.0, 2.0), "x"))
    points = tree(panels.points_figure(EVIL, [Mark(1.0, 1.0, 0, True, EVIL)], EVIL))
    for root in (dots, points):
        assert root.get("aria-label", "").startswith("<img src=x")
        assert not list(root.iter("img"))
        assert any((text.text or "").startswith("<img src=x") for text in root.iter("text"))
