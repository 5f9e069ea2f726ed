"""Curves of training: one number against the step, for several runs or optimizers.

A record is one line of a run's log, ``{"step": 100, "gsnr": 0.3, "gsnr_low": 0.2, "gsnr_high": 0.5, ...}``;
the two ends of an interval are optional. `curve_data` picks one name out of the records of each label,
`plot_curves` draws it, `write_csv` puts the numbers of a figure beside it.
"""

from __future__ import annotations

import csv
import json
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Record: TypeAlias = "Mapping[str, Any]"
Row: TypeAlias = "list[str | int | float]"

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
"""Okabe and Ito's colours, told apart by colour-blind readers; without the yellow, too faint for a line."""
DASHES = ("-", "--", ":", "-.")
"""The second way to tell lines apart, used when the colours start again."""

LEGEND = 64
"""Characters that fit above a figure; a wider legend would squeeze it."""


class ReportError(ValueError):
    """What came cannot be reported; the message says what came, what is allowed and what to do."""


class Table(Protocol):
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


def read_jsonl(path: str | Path) -> list[dict[str, Any]]:
    """The records of a file with one JSON object in each line.

    A last line that has no end and is no JSON was torn by a run that stopped, or that is still writing: it is
    left out with a warning. Any other line that is no JSON object is refused by its number.
    """
    path = Path(path)
    if not path.is_file():
        raise ReportError(f"There is no file {path}; name the records.jsonl of a run.")
    lines = path.read_bytes().split(b"\n")
    records = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line.decode("utf-8"))
        except ValueError as problem:  # of JSON or of UTF-8
            if number < len(lines):
                raise ReportError(
                    f"Line {number} of {path} is not JSON ({problem}); repair or remove that line."
                ) from problem
            warnings.warn(
                f"The last line ({number}) of {path} is torn and was left out; the run may still be writing.",
                stacklevel=2,
            )
            continue
        if not isinstance(record, dict):
            raise ReportError(f"Line {number} of {path} is no JSON object; repair or remove that line.")
        records.append(record)
    return records


def curve_data(records: Mapping[str, Sequence[Record]], name: str) -> CurveData:
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


def _curve(label: str, records: Sequence[Record], name: str) -> Curve:
    by_step = {point[0]: point for point in (_point(label, row, name) for row in records if name in row)}
    points = [by_step[step] for step in sorted(by_step)]
    if not points:
        known = sorted({key for row in records for key in row if key != "step"})
        near = get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise ReportError(
            f"No record of {label!r} has {name!r} (they have {', '.join(known) or 'nothing'}){hint}"
        )
    steps = [point[0] for point in points]
    low, high = [point[2] for point in points], [point[3] for point in points]
    has_interval = not all(map(math.isnan, low))
    return Curve(
        label, steps, [p[1] for p in points], low if has_interval else [], high if has_interval else []
    )


def _point(label: str, row: Record, name: str) -> tuple[int, float, float, float]:
    step = row.get("step")
    if isinstance(step, bool) or not isinstance(step, int):
        raise ReportError(f"A record of {label!r} has step={step!r}; a step is a whole number, so repair it.")
    ends = f"{name}_low" in row, f"{name}_high" in row
    if any(ends) != all(ends):
        raise ReportError(
            f"The record of {label!r} at step {step} has one of {name}_low and {name}_high; give both or none."
        )
    value = _number(label, row, name)
    low, high = (
        (_number(label, row, f"{name}_low"), _number(label, row, f"{name}_high"))
        if all(ends)
        else (math.nan, math.nan)
    )
    if low > high:
        raise ReportError(
            f"{label!r} has {name}_low={low} above {name}_high={high} at step {step}; exchange them."
        )
    return step, value, low, high


def _number(label: str, row: Record, name: str) -> float:
    value = row[name]
    if value is None:  # JSON's way to say that a number is not finite
        return math.nan
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ReportError(
            f"{label!r} has {name}={value!r} at step {row['step']}; only numbers can be drawn, so repair it."
        )
    return float(value)


def plot_curves(data: CurveData, ax: Axes | None = None) -> Axes:
    """Draw each curve as a line, its intervals as a band and its label in a legend above.

    A value that is not finite is a gap. Without ``ax`` a new figure is made; ``result.figure.savefig(path)``
    saves it.
    """
    ax = new_axes() if ax is None else ax
    for i, curve in enumerate(data.curves):
        colour, dash = COLOURS[i % len(COLOURS)], DASHES[i // len(COLOURS) % len(DASHES)]
        marker = "o" if len(curve.steps) < 2 else None  # one point is no line
        ax.plot(curve.steps, curve.values, dash, color=colour, marker=marker, linewidth=1.8, label=curve.label)
        if curve.low:
            ax.fill_between(curve.steps, curve.low, curve.high, color=colour, alpha=0.18, linewidth=0)
    ax.set_xlabel("step")
    ax.set_ylabel(data.name.replace("_", " "))
    if ax.get_xscale() == "linear":
        ax.locator_params(axis="x", integer=True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", alpha=0.25)
    longest = max(len(curve.label) for curve in data.curves)
    columns = max(1, min(4, len(data.curves), LEGEND // (longest + 7)))  # 7: a line and its gaps
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1.01), ncols=columns, frameon=False, borderaxespad=0)
    return ax


def new_axes(width: float = 6.4, height: float = 4.0) -> Axes:
    """Axes on a figure of their own, outside pyplot, so that nothing stays open."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as problem:
        raise ReportError(
            'Figures need matplotlib, not installed here; run pip install "genie-dg[report]" and try again.'
        ) from problem
    return Figure(figsize=(width, height), dpi=150, layout="constrained").add_subplot()


def write_csv(figure: str | Path, data: Table) -> Path:
    """Write the numbers of a figure beside it, under the same name with ``.csv``; NaN is an empty cell."""
    header, rows = data.table()
    path = Path(figure).with_suffix(".csv")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(["" if cell != cell else cell for cell in row] for row in rows)
    return path
