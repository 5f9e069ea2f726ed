"""Which parameters move when: mean |update| by step and parameter ID, after Figure 1 of the GENIE paper."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from .curves import ReportError, Row, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAMES = 12
"""More names than this beside a heatmap cannot be read."""
ROOM = 0.035
"""A name is written if its parameters are at least this part of the axis."""


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
    sections = _sections(boundaries or {})
    return HeatmapData(start, list(steps), rows, list(edges), sections, normalise)


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
        if len(sections) <= NAMES:
            break
    return sections


def plot_update_heatmap(data: HeatmapData, ax: Axes | None = None) -> Axes:
    """Draw steps to the right, parameter IDs upwards, and the parts of the model at the right edge.

    Without ``ax`` a new figure is made; ``result.figure.savefig(path)`` saves it.
    """
    ax = new_axes(7.0, 4.2) if ax is None else ax
    from matplotlib.ticker import EngFormatter

    columns = [list(column) for column in zip(*data.values, strict=True)]  # IDs upwards
    lowest, after = data.edges[0], data.edges[-1]
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
    _mark_sections(data.sections, lowest, after, ax)
    return ax


def _mark_sections(sections: Sequence[tuple[str, int]], lowest: int, after: int, ax: Axes) -> None:
    """Ticks outside the right edge, which hide no number, and a name wherever there is room for it."""
    if not sections:
        return
    spans = [(name, first, end) for (name, first), (_, end) in pairwise([*sections, ("", after)])]
    named = [(name, (a + b) / 2) for name, a, b in spans if b - a >= ROOM * (after - lowest)]
    side = ax.secondary_yaxis("right")
    side.set_yticks([place for _, place in named], [name for name, _ in named], fontsize="small")
    side.set_yticks([first for _, first, _ in spans], minor=True)
    side.tick_params(which="major", length=0)
    side.tick_params(which="minor", length=9)
