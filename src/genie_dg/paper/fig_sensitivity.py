"""Accuracy against p and beta (the paper's Figure 2): measured here, and from the authors' logs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from genie_dg.report.figures import COLOURS, DASHES

from .figure_setup import panels, save
from .logged import committed
from .request import Request
from .sourced import LOGGED, MEASURED, Numbers, logged

GRID_SET = "OfficeHome"
"""The data set of the figure of p and beta, by the logs; the paper does not say it."""


def logged_sensitivity() -> Numbers:
    """The authors' grid, and beside it what their runs of other optimizers with default settings gave there."""
    rows = [f"{optimizer}, defaults" for optimizer in ("SGD", "Adam", "SAM")]
    others = [number for number in logged("optimizers", GRID_SET) if number.row in rows]
    return logged("sensitivity", GRID_SET) + sorted(others, key=lambda number: rows.index(number.row))


def draw_sensitivity(measured: Numbers, request: Request) -> tuple[Path, ...]:
    """A row of panels for what is measured here, if there is something, and one for what was logged."""
    rows = [
        (numbers, origin)
        for numbers, origin in ((measured, MEASURED), (logged_sensitivity(), LOGGED))
        if numbers
    ]
    figure, axes = panels(len(rows), 2, 11, 4.4 * len(rows), sharey="row")
    for n, (numbers, origin) in enumerate(rows):
        averages = _averages(numbers, origin)
        for name, ax in zip(("p", "beta"), axes[2 * n : 2 * n + 2], strict=True):
            _draw_points(averages, name, ax)
        place = f"{GRID_SET}, {committed().place}" if origin == LOGGED else numbers[0].place
        several = any(error for _, error in averages.values())
        errors = "bars and bands: standard error over trials" if several else "one run a domain, so no errors"
        axes[2 * n].set_title(f"{origin}: {place}; {errors}", fontsize="medium", loc="left")
        axes[2 * n].set_ylabel("average accuracy on the domain left out, %")
        axes[2 * n + 1].legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    return save(figure, request.out, "sensitivity")


def _averages(numbers: Numbers, origin: str) -> dict[str, tuple[float, float]]:
    """By row, the average over domains and its error, 0 where there is none."""
    return {
        number.row: (number.value, number.error or 0.0)
        for number in numbers
        if number.column == "Avg" and number.origin == origin and number.value is not None
    }


def _draw_points(averages: dict[str, tuple[float, float]], name: str, ax: Any) -> None:
    """GENIE at each value of p or beta, and other optimizers as level lines."""
    start = f"GENIE {name}="
    points = sorted(
        (float(row.removeprefix(start)), *y) for row, y in averages.items() if row.startswith(start)
    )
    xs = range(len(points))  # evenly: beta's values lie too close together
    values, errors = [y for _, y, _ in points], [error for _, _, error in points]
    ax.errorbar(xs, values, errors, marker="o", capsize=4, color=COLOURS[0], label="GENIE")
    ax.set_xticks(list(xs), [f"{x:g}" for x, _, _ in points])
    others = [(row, y) for row, y in averages.items() if not row.startswith("GENIE ")]
    for k, (row, (y, error)) in enumerate(others, 1):
        ax.axhline(y, color=COLOURS[k], linestyle=DASHES[k % len(DASHES)], label=row)
        ax.axhspan(y - error, y + error, color=COLOURS[k], alpha=0.12, linewidth=0)
    ax.set_xlabel(f"{name} ({'beta = 0.95' if name == 'p' else 'p = 0.4'})")
