"""All figures: numbers first, then what is drawn of them with matplotlib, for papers and for the page.

A record is one line of a run's log, ``{"step": 100, "gsnr": 0.3, "gsnr_low": 0.2, "gsnr_high": 0.5, ...}``;
the two ends of an interval are optional. `curve_data` picks one name out of the records of each label,
`plot_curves` draws it, `write_csv` puts the numbers of a figure beside it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from genie_dg.check import InputError, did_you_mean

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


class ReportError(InputError):
    """The numbers cannot be drawn."""


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
    by_step = {row["step"]: row for row in records if name in row}
    if not by_step:
        known = sorted({key for row in records for key in row if key != "step"})
        raise ReportError(
            f"No record of {label!r} has {name!r} (they have {', '.join(known) or 'nothing'})"
            f"{did_you_mean(name, known)}"
        )
    steps = sorted(by_step)
    names = (name, f"{name}_low", f"{name}_high")
    try:  # JSON says null for what is not finite
        values = [
            [math.nan if (x := by_step[k].get(key)) is None else float(x) for k in steps] for key in names
        ]
    except (TypeError, ValueError) as error:
        raise ReportError(f"{label!r} has a {name!r} that is not a number ({error}).") from error
    low, high = ([] if all(map(math.isnan, some)) else some for some in values[1:])
    return Curve(label, steps, values[0], low, high)


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


def write_csv(figure: str | Path, data: CurveData) -> Path:
    """Write the numbers of a figure beside it, under the same name with ``.csv``; NaN is an empty cell."""
    from .render import csv_text

    path = Path(figure).with_suffix(".csv")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(csv_text(*data.table()), encoding="utf-8")
    return path
