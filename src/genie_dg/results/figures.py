"""All figures: numbers first, then what is drawn of them with matplotlib, for papers and for the page.

A record is one line of a run's log, ``{"step": 100, "gsnr": 0.3, "gsnr_low": 0.2, "gsnr_high": 0.5, ...}``;
the two ends of an interval are optional. `curve_data` picks one name out of the records of each label,
`plot_curves` draws it, `write_csv` puts the numbers of a figure beside it; `heatmap_data` and
`plot_update_heatmap` do the same for which parameters move when, after Figure 1 of the GENIE paper.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from genie_dg.check import InputError, did_you_mean, is_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LogLine: TypeAlias = "Mapping[str, Any]"
Row: TypeAlias = "list[str | int | float]"

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
"""Okabe and Ito's colours, told apart by colour-blind readers; without the yellow, too faint for a line."""
DASHES = ("-", "--", ":", "-.")
"""The second way to tell lines apart."""

_LEGEND = 64
"""Characters that fit above a figure; a wider legend would squeeze it."""
_NAMES = 12
"""More names than this beside a heatmap cannot be read."""
_SPACE = 0.035
"""A name is written if its parameters are at least this part of the axis."""


class ReportError(InputError):
    """The numbers cannot be drawn."""


class Numbers(Protocol):
    """The numbers of a figure."""

    def table(self) -> tuple[list[str], list[Row]]:
        """The names of the columns and the rows."""
        ...


@dataclass(frozen=True)
class Curve:
    """One line: ``low`` and ``high`` are empty without intervals, and NaN at a step that has none."""

    label: str
    steps: list[int]
    values: list[float]
    low: list[float]
    high: list[float]


@dataclass(frozen=True)
class CurveData:
    """The curves of one name."""

    name: str
    curves: list[Curve]

    def table(self) -> tuple[list[str], list[Row]]:
        """One row for each point; the ends of an interval that does not exist are NaN."""
        rows: list[Row] = []
        for curve in self.curves:
            none = [math.nan] * len(curve.steps)
            points = zip(curve.steps, curve.values, curve.low or none, curve.high or none, strict=True)
            rows += [[curve.label, *point] for point in points]
        return ["label", "step", self.name, f"{self.name}_low", f"{self.name}_high"], rows


def curve_data(records: Mapping[str, Sequence[LogLine]], name: str) -> CurveData:
    """The points of ``name`` for each label, in the order of their steps.

    Args:
        records: for each label the records of one run. A record without ``name`` was not a measurement of
            it and is passed over; a label without any is refused. When a step comes twice, in a run that was
            resumed from an earlier step, the later record counts.
        name: what is drawn; ``<name>_low`` and ``<name>_high`` give its interval.

    >>> early = {"step": 1, "loss": 1.0, "loss_low": 0.9, "loss_high": 1.1}
    >>> curve_data({"GENIE": [{"step": 2, "loss": 0.5}, early]}, "loss").curves[0]
    Curve(label='GENIE', steps=[1, 2], values=[1.0, 0.5], low=[0.9, nan], high=[1.1, nan])
    """
    if not records:
        raise ReportError("There are no records to draw; give those of at least one label.")
    return CurveData(name, [_curve(label, rows, name) for label, rows in records.items()])


def _curve(label: str, records: Sequence[LogLine], name: str) -> Curve:
    by_step = {point[0]: point for point in (_point(label, row, name) for row in records if name in row)}
    points = [by_step[step] for step in sorted(by_step)]
    if not points:
        known = sorted({key for row in records for key in row if key != "step"})
        raise ReportError(
            f"No record of {label!r} has {name!r} (they have {', '.join(known) or 'nothing'})"
            f"{did_you_mean(name, known)}"
        )
    steps, values, low, high = (list(column) for column in zip(*points, strict=True))
    none = all(map(math.isnan, low))
    return Curve(label, steps, values, [] if none else low, [] if none else high)


def _point(label: str, row: LogLine, name: str) -> tuple[int, float, float, float]:
    step = row.get("step")
    if isinstance(step, bool) or not isinstance(step, int):
        raise ReportError(f"A record of {label!r} has step={step!r}; expected a whole number.")
    ends = f"{name}_low" in row, f"{name}_high" in row
    if any(ends) != all(ends):
        raise ReportError(
            f"The record of {label!r} at step {step} has one of {name}_low and {name}_high; give both or none."
        )
    names = [name, f"{name}_low", f"{name}_high"] if all(ends) else [name]
    value, low, high = [*(_number(label, row, key) for key in names), math.nan, math.nan][:3]
    if low > high:
        raise ReportError(
            f"{label!r} has {name}_low={low} above {name}_high={high} at step {step}; exchange them."
        )
    return step, value, low, high


def _number(label: str, row: LogLine, name: str) -> float:
    value = row[name]
    if value is None or value != value or value in (math.inf, -math.inf):  # JSON says null for the first
        return math.nan if value is None else float(value)
    if not is_number(value):
        raise ReportError(f"{label!r} has {name}={value!r} at step {row['step']}; expected a number.")
    return float(value)


LineStyle = tuple[str, str]
"""Colour and dashes."""


def plot_curves(data: CurveData, ax: Axes | None = None, styles: Sequence[LineStyle] | None = None) -> Axes:
    """Draw each curve as a line, its intervals as a band and its label in a legend above.

    A value that is not finite is a gap. Without ``ax`` a new figure is made; ``result.figure.savefig(path)``
    saves it. With ``styles``, one for each curve, there is no legend: the page has one for many figures.
    """
    ax = new_axes() if ax is None else ax
    count = len(COLOURS)
    usual = [(COLOURS[i % count], DASHES[i // count % len(DASHES)]) for i in range(len(data.curves))]
    for curve, (colour, dash) in zip(data.curves, styles or usual, strict=True):
        marker = "o" if len(curve.steps) < 2 else None  # one point is not a line
        ax.plot(curve.steps, curve.values, dash, color=colour, marker=marker, linewidth=1.8, label=curve.label)
        if curve.low:
            ax.fill_between(curve.steps, curve.low, curve.high, color=colour, alpha=0.18, linewidth=0)
    ax.set_xlabel("step")
    if ax.get_xscale() == "linear":
        ax.locator_params(axis="x", integer=True)
    if styles is not None:
        return ax
    ax.set_ylabel(data.name.replace("_", " "))
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", alpha=0.25)
    longest = max(len(curve.label) for curve in data.curves)
    columns = max(1, min(4, len(data.curves), _LEGEND // (longest + 7)))  # 7: a line and its gaps
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1.01), ncols=columns, frameon=False, borderaxespad=0)
    return ax


def new_figure(width: float, height: float, **more: Any) -> Figure:
    """A figure outside pyplot, so that nothing stays open; more are arguments of matplotlib's class."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as problem:
        raise ReportError(
            'Figures need matplotlib, not installed here; run pip install "genie-dg[report]" and try again.'
        ) from problem
    return Figure(figsize=(width, height), **more)


def new_axes(width: float = 6.4, height: float = 4.0) -> Axes:
    """Axes on a figure of their own."""
    return new_figure(width, height, dpi=150, layout="constrained").add_subplot()


def write_csv(figure: str | Path, data: Numbers) -> Path:
    """Write the numbers of a figure beside it, under the same name with ``.csv``; NaN is an empty cell."""
    from .render import csv_text

    path = Path(figure).with_suffix(".csv")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(csv_text(*data.table()), encoding="utf-8")
    return path


@dataclass(frozen=True)
class HeatmapData:
    """The numbers of a heatmap.

    Attributes:
        start: the step from which the first row counts.
        steps: the step of each row; a row is what moved since the row before.
        values: one row for each step, one number for each group of parameters.
        edges: group b holds the IDs edges[b] to edges[b + 1] - 1.
        sections: names and first IDs of the parts of the model that are marked.
        normalised: whether each row was divided by its maximum.
    """

    start: int
    steps: list[int]
    values: list[list[float]]
    edges: list[int]
    sections: list[tuple[str, int]]
    normalised: bool

    def table(self) -> tuple[list[str], list[Row]]:
        """One row for each cell."""
        name = "share_of_largest_update" if self.normalised else "mean_absolute_update"
        rows: list[Row] = [
            [step, first, after - 1, value]
            for step, row in zip(self.steps, self.values, strict=True)
            for (first, after), value in zip(pairwise(self.edges), row, strict=True)
        ]
        return ["step", "first_id", "last_id", name], rows


def heatmap_data(
    steps: Sequence[int],
    values: Sequence[Sequence[float]],
    edges: Sequence[int],
    boundaries: Mapping[str, int] | None = None,
    *,
    normalise: bool = True,
    start: int | None = None,
) -> HeatmapData:
    """Check and scale what ``UpdateRecorder.heatmap()`` holds, given as plain numbers.

    Args:
        steps: increasing; the step of each row of ``values``.
        values: mean |update| of each group of parameters; finite and not negative.
        edges: group b holds the IDs edges[b] to edges[b + 1] - 1, so one more than there are groups.
        boundaries: the first ID of each tensor, by dotted name. With more than 12 tensors those with a common
            beginning are put together, as finely as 12 names allow.
        normalise: divide each row by its maximum, so that steps with a large and a small learning rate
            are both seen; a row of zeros stays as it is.
        start: the step from which the first row counts; unless given, the first row is as wide as the second.

    >>> data = heatmap_data([10, 20], [[1.0, 4.0], [0.0, 2.0]], [0, 3, 6], {"body.weight": 0, "head.weight": 4})
    >>> data.values, data.start, data.sections
    ([[0.25, 1.0], [0.0, 1.0]], 0, [('body.weight', 0), ('head.weight', 4)])
    """
    _check_shape(steps, values, edges)
    for step, row in zip(steps, values, strict=True):
        if not all(math.isfinite(value) and value >= 0 for value in row):
            raise ReportError(
                f"The row of step {step} has a negative or non-finite update; leave that row out."
            )
    if start is None:
        start = 2 * steps[0] - steps[1] if len(steps) > 1 else steps[0] - 1
    if start >= steps[0]:
        raise ReportError(f"start={start} is not before the first step {steps[0]}; give an earlier one.")
    rows = [[value / ((max(row) if normalise else 1.0) or 1.0) for value in row] for row in values]
    return HeatmapData(start, list(steps), rows, list(edges), _sections(boundaries or {}), normalise)


def _check_shape(steps: Sequence[int], values: Sequence[Sequence[float]], edges: Sequence[int]) -> None:
    if not steps or len(steps) != len(values):
        raise ReportError(f"There are {len(steps)} steps for {len(values)} rows; give one step for each row.")
    if len(edges) < 2 or any(len(row) != len(edges) - 1 for row in values):
        raise ReportError(
            f"There are {len(edges)} edges, so each row must hold one number less; give such rows."
        )
    for what, numbers in (("steps", steps), ("edges", edges)):
        if any(a >= b for a, b in pairwise(numbers)):
            raise ReportError(f"The {what} do not increase; give them in order, each once.")


def _sections(boundaries: Mapping[str, int]) -> list[tuple[str, int]]:
    """Names and first IDs, put together by the beginnings of dotted names until they can be read."""
    deepest = max((name.count(".") + 1 for name in boundaries), default=1)
    for depth in range(deepest, 0, -1):
        sections: list[tuple[str, int]] = []
        for name, first in sorted(boundaries.items(), key=lambda item: item[1]):
            short = ".".join(name.split(".")[:depth])
            if not sections or sections[-1][0] != short:
                sections.append((short, first))
        if len(sections) <= _NAMES:
            break
    return sections


def plot_update_heatmap(data: HeatmapData, ax: Axes | None = None) -> Axes:
    """Draw steps to the right, parameter IDs upwards, and the parts of the model at the right edge.

    Without ``ax`` a new figure is made; ``result.figure.savefig(path)`` saves it.
    """
    ax = new_axes(7.0, 4.2) if ax is None else ax
    from matplotlib.ticker import EngFormatter

    columns = [list(column) for column in zip(*data.values, strict=True)]  # IDs upwards
    mesh = ax.pcolormesh(
        [data.start, *data.steps],
        data.edges,
        columns,
        cmap="viridis",
        vmin=0.0,
        vmax=1.0 if data.normalised else max(map(max, data.values)) or 1.0,
        rasterized=True,
    )
    label = "mean |update| / largest of the step" if data.normalised else "mean |update|"
    ax.figure.colorbar(mesh, ax=ax, label=label)
    ax.set_xlabel("step")
    ax.set_ylabel("parameter ID")
    ax.locator_params(axis="x", integer=True)
    ax.yaxis.set_major_formatter(EngFormatter(sep=""))  # 20M instead of 2.0 and 1e7 elsewhere
    _mark_sections(data.sections, data.edges[0], data.edges[-1], ax)
    return ax


def _mark_sections(sections: Sequence[tuple[str, int]], lowest: int, after: int, ax: Axes) -> None:
    """Ticks outside the right edge, which hide no number, and a name wherever there is space for it."""
    if not sections:
        return
    spans = [(name, first, end) for (name, first), (_, end) in pairwise([*sections, ("", after)])]
    named = [(name, (a + b) / 2) for name, a, b in spans if b - a >= _SPACE * (after - lowest)]
    side = ax.secondary_yaxis("right")
    side.set_yticks([place for _, place in named], [name for name, _ in named], fontsize="small")
    side.set_yticks([first for _, first, _ in spans], minor=True)
    side.tick_params(which="major", length=0)
    side.tick_params(which="minor", length=9)
