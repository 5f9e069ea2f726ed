"""One page about runs that needs nothing but itself: it opens offline, asks for no file and stays one file.

`page_data` computes, `panels` draws, the template ``page.html.j2`` says what stands where. The page's own
policy forbids every request and every script but the one whose digest it names, so a text from a run could do
nothing even if it were not escaped.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

import polars as pl

from genie_dg.check import is_number

from . import panels
from .figures import COLOURS, Curve, CurveData, ReportError
from .page_data import LISTED_DRAWS, Chart, DataSetPage, ListedRun, Page, page_data
from .render import footnotes
from .stats import count_of
from .tables import Cell, Table, extras

_SHOWN = 12
"""The most rows that are drawn beside each other as dots or heatmaps; more would be longer than the table."""
_LISTED = 200
"""The most problems or unfinished runs that are listed."""
_DARK = {"#000000": "#ffffff", "#0072B2": "#3a9bdc"}
"""Colours that cannot be seen on dark paper, and what stands for them there."""
_SWATCHES = {"-": "none", "--": "6 3", ":": "2 3", "-.": "8 3 2 3"}


class Figure(NamedTuple):
    """A figure under its caption."""

    caption: str
    svg: str


def report(frame: pl.DataFrame, problems: Sequence[str] = (), *, mix: bool = False) -> str:
    """The page of some runs, as text.

    Args:
        frame: from `genie_dg.results.frame.load`.
        problems: from there too.
        mix: allow several protocols, each in rows of its own.
    """
    return page_text(page_data(frame, problems, mix=mix))


def page_text(page: Page) -> str:
    """The page from its numbers."""
    return rendered(
        "page.html.j2",
        {"accuracy": _accuracy, "footnotes": footnotes, "best": best_means, "extras": extras},
        page=page,
        drawn=[drawings(one, page) for one in page.sets],
        numbers=safe_json(numbers(page)),
        swatches=[_SWATCHES[panels.style_of(place)[1]] for place in range(len(page.rows))],
        limits={"draws": LISTED_DRAWS, "runs": LISTED_DRAWS, "listed": _LISTED},
    )


def rendered(template: str, filters: Mapping[str, Callable[..., Any]], **values: Any) -> str:
    """A page from its template, with the style and the script that all pages share."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ModuleNotFoundError as problem:
        raise ReportError(
            'The report needs jinja2, not installed here; run pip install "genie-dg[report]" and try again.'
        ) from problem
    loader = PackageLoader("genie_dg", "results/templates")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update({"count": count_of, **filters})
    script = files("genie_dg.results").joinpath("templates/page.js").read_text(encoding="utf-8")
    text: str = environment.get_template(template).render(
        style=files("genie_dg.results").joinpath("templates/page.css").read_text(encoding="utf-8"),
        script=script,
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        colours=[(colour, _DARK.get(colour, colour)) for colour in COLOURS],
        **values,
    )
    return text


def _accuracy(cell: Cell) -> str:
    """A cell of a table of accuracies, in percent, without its footnote."""
    if cell.mean is None:
        return "" if cell.blank else "missing"
    return f"{100 * cell.mean:.1f}" + ("" if cell.error is None else f" ± {100 * cell.error:.1f}")


def best_means(table: Table) -> list[float | None]:
    """The highest mean of each column, where two rows or more are compared."""
    if len(table.lines) < 2 or table.kind == "matrix":
        return [None] * len(table.columns)
    columns = zip(*(line.cells for line in table.lines), strict=True)
    return [max((cell.mean for cell in column if cell.mean is not None), default=None) for column in columns]


def drawings(one: DataSetPage, page: Page) -> dict[str, list[Figure]]:
    """The figures of a data set, by section; a section without any is left out of the page."""
    place = page.rows.index
    charts = [chart for chart in one.curves if chart.percent] + one.losses
    charts += [chart for chart in one.curves if not chart.percent]
    return {
        "curves": [_curve(one, chart, place) for chart in charts if any(c.steps for c in chart.data.curves)],
        "differences": _differences(one, place),
        "search": _search(one, place),
    }


def _curve(one: DataSetPage, chart: Chart, place: Callable[[str], int]) -> Figure:
    """Curves; all accuracies of a data set have the same axis."""
    scale = 100 if chart.percent else 1
    name = f"{chart.data.name} (%)" if chart.percent else chart.data.name
    curves = [
        Curve(c.label, c.steps, *([scale * x for x in some] for some in (c.values, c.low, c.high)))
        for c in chart.data.curves
    ]
    limits = None
    if chart.percent:
        all_ = [c for other in one.curves if other.percent for c in other.data.curves]
        limits = panels.axis_span([100 * x for c in all_ for x in (*c.values, *c.low, *c.high)], 2.0)
    places = [place(curve.label) for curve in curves]
    label = f"{one.name}: {name} against the step"
    return Figure(name, panels.lines(label, CurveData(name, curves), places, limits))


def _differences(one: DataSetPage, place: Callable[[str], int]) -> list[Figure]:
    """Paired differences with their intervals around zero."""
    if not 0 < len(one.differences) <= _SHOWN:
        return []
    rows = []
    for c in one.differences:
        low, high = (None, None) if c.interval is None else (100 * c.interval.low, 100 * c.interval.high)
        mean, name = 100 * c.mean, f"{c.row} against {c.baseline}"
        rows.append(panels.Dot(place(c.row), name, mean, low, high, f"{mean:+.2f}"))
    far = max([0.5, *(abs(x) for row in rows for x in (row.value, row.low, row.high) if x is not None)])
    label = f"{one.name}: paired differences in points"
    drawn = panels.dots(label, rows, panels.axis_span([-far, far]), "points", zero=True)
    return [Figure("Difference in points", drawn)]


def _search(one: DataSetPage, place: Callable[[str], int]) -> list[Figure]:
    """Validation against test accuracy of each run, then every setting that varies against both."""
    draws = [draw for some in one.draws.values() for draw in some[:LISTED_DRAWS]]
    if not draws:
        return []
    sides = {"Validation": [100 * d.validation for d in draws], "Test": [100 * d.test for d in draws]}
    limits = panels.axis_span([value for values in sides.values() for value in values], 2.0)
    axes: list[tuple[str, str, list[Any]]] = [("Test", "validation accuracy (%)", sides["Validation"])]
    for name in one.settings:
        axes += [(side, name, [d.settings.get(name) for d in draws]) for side in sides]
    figures = []
    for side, name, xs in axes:
        at = [k for k, x in enumerate(xs) if is_number(x)]
        shown = [xs[k] for k in at]
        log = name in one.settings and min(shown) > 0 and max(shown) >= 10 * min(shown)
        marks = [_mark(draws[k], xs[k], sides[side][k], place) for k in at]
        label = f"{one.name}: {side.lower()} accuracy against {name}, a mark for each run"
        caption = f"{side} (%) against {name.removesuffix(' accuracy (%)')}"
        figures.append(Figure(caption, panels.points_figure(label, marks, name, log, limits)))
    return figures


def _mark(draw: ListedRun, x: float, y: float, place: Callable[[str], int]) -> panels.Mark:
    scores = f"validation {100 * draw.validation:.1f}, test {100 * draw.test:.1f}"
    words = f"{draw.row}, {draw.where}, trial {draw.trial}, draw {draw.draw}: {scores}; run {draw.run}"
    return panels.Mark(x, y, place(draw.row), draw.chosen, words)


def safe_json(data: Any) -> str:
    r"""JSON that cannot end the element around it.

    >>> safe_json({"a": "</script>"})
    '{"a":"\\u003c/script\\u003e"}'
    """
    raw = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return raw.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def numbers(page: Page) -> dict[str, Any]:
    """The tables, curves and draws as plain data; accuracies from 0 to 1, to five digits."""
    chosen = [s for one in page.sets for s in one.selections] + page.averages
    draws = [(one, draw) for one in page.sets for some in one.draws.values() for draw in some[:LISTED_DRAWS]]
    return {
        "tables": [_table(table) for selection in chosen for table in selection.tables],
        "curves": [line for one in page.sets for chart in one.curves for line in _lines(one, chart)],
        "losses": [line for one in page.sets for chart in one.losses for line in _lines(one, chart)],
        "settings": [{"data": one.name, "names": one.settings} for one in page.sets],
        "seconds": [
            {"run": draw.run, "row": draw.row, "per_step": float(f"{draw.seconds:.4g}")}
            for _, draw in draws
            if draw.seconds is not None
        ],
        "runs": [_run(one, draw) for one, draw in draws],
        "verdict": page.verdict,
    }


def _table(table: Table) -> dict[str, Any]:
    lines = [
        {
            "row": line.label,
            "source": line.source,
            "mean": [_five(cell.mean) for cell in line.cells],
            "error": [_five(cell.error) for cell in line.cells],
        }
        for line in table.lines
    ]
    who = {"title": table.title, "kind": table.kind, "selection": table.method}
    return {**who, "columns": list(table.columns), "lines": lines}


def _run(one: DataSetPage, draw: ListedRun) -> dict[str, Any]:
    values = {"data": one.name, **vars(draw), "settings": _finite(draw.settings)}
    del values["seconds"]
    return {**values, "validation": _five(draw.validation), "test": _five(draw.test)}


def _lines(one: DataSetPage, chart: Chart) -> list[dict[str, Any]]:
    who = {"data": one.name, "name": chart.data.name}
    return [
        {**who, "row": c.label, "step": c.steps, "value": c.values, "low": c.low, "high": c.high}
        for c in chart.data.curves
    ]


def _five(value: float | None) -> float | None:
    return None if value is None else round(value, 5)


def _finite(settings: Any) -> dict[str, Any]:
    """Settings without what JSON has no word for."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in settings.items()}
