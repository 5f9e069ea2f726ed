"""Accuracy against p and beta (the paper's Figure 2): measured here, and from the authors' logs.

Two panels have one of p and beta at a time beside the other optimizers, as in the paper. What is measured on
digits has a third, p times beta, which the paper does not have: whether the two act alone or together.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from genie_dg.results.figures import COLOURS, DASHES

from .figure_setup import panels, save
from .logged import committed
from .request import Request
from .sourced import LOGGED, MEASURED, Numbers, logged

GRID_SET = "OfficeHome"
"""The data set of the figure of p and beta, by the logs; the paper does not say it."""
DEFAULTS = {"p": 0.4, "beta": 0.95}
"""Where the other of the two stays."""

Averages = Mapping[str, tuple[float, float]]
"""By row, the average over domains and its standard error over trials, 0 where there is none."""


def logged_sensitivity() -> Numbers:
    """The authors' grid, and beside it what their runs of other optimizers with default settings gave there."""
    rows = [f"{optimizer}, defaults" for optimizer in ("SGD", "Adam", "SAM")]
    others = [number for number in logged("optimizers", GRID_SET) if number.row in rows]
    return logged("sensitivity", GRID_SET) + sorted(others, key=lambda number: rows.index(number.row))


def averages_of(numbers: Numbers, origin: str) -> dict[str, tuple[float, float]]:
    """By row, the average over domains and its error, 0 where there is none."""
    return {
        number.row: (number.value, number.error or 0.0)
        for number in numbers
        if number.column == "Avg" and number.origin == origin and number.value is not None
    }


@dataclass(frozen=True)
class SensitivityGrid:
    """Averages and errors by p (rows) and beta (columns); ``None`` where nothing was run."""

    p: list[float]
    beta: list[float]
    cells: list[list[tuple[float, float] | None]]


def grid_of(averages: Averages) -> SensitivityGrid:
    """GENIE by p and beta, from the rows of both lines and of what lies off them.

    >>> rows = {"GENIE p=0.0": (61.0, 1.0), "GENIE beta=0.9": (62.0, 0.5), "GENIE p=0.0 beta=0.9": (63.0, 0.0)}
    >>> grid_of({**rows, "SGD": (60.0, 2.0), "GENIE p=0.4": (64.0, 1.5)})  # doctest: +NORMALIZE_WHITESPACE
    SensitivityGrid(p=[0.0, 0.4], beta=[0.9, 0.95],
         cells=[[(63.0, 0.0), (61.0, 1.0)], [(62.0, 0.5), (64.0, 1.5)]])
    """
    cells: dict[tuple[float, float], tuple[float, float]] = {}
    for row, value in averages.items():
        if row.startswith("GENIE "):
            at = {**DEFAULTS, **{name: float(x) for name, x in re.findall(r"(p|beta)=([\d.]+)", row)}}
            cells[at["p"], at["beta"]] = value
    ps, betas = sorted({p for p, _ in cells}), sorted({beta for _, beta in cells})
    return SensitivityGrid(ps, betas, [[cells.get((p, beta)) for beta in betas] for p in ps])


def draw_sensitivity(measured: Numbers, request: Request) -> tuple[Path, ...]:
    """A row of panels for what is measured here, if there is something, and one for what was logged."""
    both = ((measured, MEASURED), (logged_sensitivity(), LOGGED))
    rows = [(numbers, origin) for numbers, origin in both if numbers]
    figure, axes = panels(len(rows), 3, 15, 4.6 * len(rows), width_ratios=(1, 1, 1.15))
    for n, (numbers, origin) in enumerate(rows):
        averages = averages_of(numbers, origin)
        left, middle, right = axes[3 * n : 3 * n + 3]
        for name, ax in (("p", left), ("beta", middle)):
            plot_line(averages, name, ax)
        middle.sharey(left)
        place = f"{GRID_SET}, {committed().place}" if origin == LOGGED else numbers[0].place
        several = any(error for _, error in averages.values())
        errors = "bars and bands: standard error over trials" if several else "one run a domain, so no errors"
        left.set_title(f"{origin}: {place}; {errors}", fontsize="medium", loc="left")
        left.set_ylabel("average accuracy on the domain left out, %")
        plot_grid(grid_of(averages), right)
    handles, labels = axes[0].get_legend_handles_labels()  # the colours of both rows are the same
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    return save(figure, request.out, "sensitivity")


def plot_line(averages: Averages, name: str, ax: Axes) -> None:
    """GENIE at each value of p or beta with its errors, and other optimizers as level lines with bands."""
    start = f"GENIE {name}="
    points = sorted(
        (float(row.removeprefix(start)), *y)
        for row, y in averages.items()
        if row.startswith(start) and " " not in row.removeprefix(start)
    )
    xs = range(len(points))  # evenly: beta's values lie too close together
    values, errors = [y for _, y, _ in points], [error for _, _, error in points]
    others = [(row, y) for row, y in averages.items() if not row.startswith("GENIE ")]
    for k, (row, (y, error)) in enumerate(others, 1):
        ax.axhspan(y - error, y + error, color=COLOURS[k], alpha=0.15, linewidth=0)
        ax.axhline(y, color=COLOURS[k], linestyle=DASHES[k % len(DASHES)], label=row.removesuffix(", defaults"))
    ax.errorbar(xs, values, errors, marker="o", capsize=4, color=COLOURS[0], label="GENIE", zorder=3)
    ax.set_xticks(list(xs), [f"{x:g}" for x, _, _ in points])
    ax.set_xlabel("p (beta = 0.95)" if name == "p" else "beta (p = 0.4)")
    ax.grid(axis="y", alpha=0.25)


def plot_grid(grid: SensitivityGrid, ax: Axes) -> None:
    """Averages as colours and numbers, with errors where there are some; a frame around the defaults."""
    known = [cell[0] for row in grid.cells for cell in row if cell is not None]
    values = [[float("nan") if cell is None else cell[0] for cell in row] for row in grid.cells]
    image = ax.imshow(values, cmap="viridis", aspect="auto", origin="lower")
    middle = (min(known) + max(known)) / 2
    for i, row in enumerate(grid.cells):
        for j, cell in enumerate(row):
            if cell is None:
                continue
            text = f"{cell[0]:.1f}" + (f"\n± {cell[1]:.1f}" if cell[1] else "")
            colour = "black" if cell[0] > middle else "white"
            ax.text(j, i, text, ha="center", va="center", color=colour, fontsize="small")
    if DEFAULTS["p"] in grid.p and DEFAULTS["beta"] in grid.beta:
        corner = grid.beta.index(DEFAULTS["beta"]) - 0.5, grid.p.index(DEFAULTS["p"]) - 0.5
        ax.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=COLOURS[1], linewidth=2.5))
    ax.set_xticks(range(len(grid.beta)), [f"{x:g}" for x in grid.beta])
    ax.set_yticks(range(len(grid.p)), [f"{x:g}" for x in grid.p])
    ax.set(xlabel="beta", ylabel="p")
    ax.set_title("GENIE, p times beta (frame: defaults)", fontsize="medium")
    ax.figure.colorbar(image, ax=ax, label="average accuracy, %")
