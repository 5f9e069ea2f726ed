"""The pictures of `fig_landscape`: all trajectories in one panel (Figure 5), and a panel for each (Figure 6).

Every panel of one loss has the same axes, contour levels and colours. Levels are quantiles of the loss on the
grid, so that lines are dense in the basin, where the trajectories are, however steep its walls are.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm

from genie_dg.results.figures import COLOURS

from .figure_setup import panels, save

if TYPE_CHECKING:
    from .fig_landscape import LandscapeData, Path2D

LEVELS = 16
"""Contour lines of a panel."""
SURFACES = ("source", "unseen")
ENDS = ("o", "D", "^")
"""Markers of the optimizers, for those who do not see the colours."""


def contour_levels(values: Sequence[Sequence[float]], count: int = LEVELS) -> list[float]:
    """Increasing levels at the quantiles ((k + 1/2) / count)^2 of a grid; equal ones are merged.

    >>> contour_levels([[0.0, 25.0, 50.0], [75.0, 100.0, 100.0]], count=2)
    [7.8125, 70.3125]
    """
    quantiles = ((np.arange(count) + 0.5) / count) ** 2
    return [float(level) for level in np.unique(np.quantile(np.asarray(values), quantiles))]


def plot_landscape(data: LandscapeData, which: str, ax: Axes, only: str = "") -> Any:
    """Draw contours of the loss on ``which`` ("source" or "unseen") and the trajectories over them.

    Args:
        data: the numbers.
        which: loss.
        ax: to draw on.
        only: the label of one trajectory; all when empty.

    Returns:
        The filled contours, for a bar of colours.
    """
    levels = data.levels[which]
    grid = np.array(data.source if which == "source" else data.unseen)
    norm = BoundaryNorm(levels, 256, extend="both")
    filled = ax.contourf(
        data.axis, data.axis, grid, levels=levels, norm=norm, cmap="Greys", alpha=0.5, extend="both"
    )
    ax.contour(data.axis, data.axis, grid, levels=levels, colors="0.4", linewidths=0.5)
    for i, path in enumerate(data.paths):
        if only in ("", path.label):
            _plot_path(path, COLOURS[i], ENDS[i], ax)
    ax.plot(*data.paths[0].places[0], "s", color="black", markersize=6, zorder=5, label="start")
    for name, x, y in data.corners:
        ax.plot(x, y, "*", color="black", markersize=9)
        ax.annotate(
            name, (x, y), (0, 9 if y > 0 else -17), textcoords="offset points", ha="center",
            bbox={"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.8},
        )  # fmt: skip
    ax.set(xlabel="x", ylabel="y", aspect="equal")
    ax.set_xlim(data.axis[0], data.axis[-1])
    ax.set_ylim(data.axis[0], data.axis[-1])
    return filled


def _plot_path(path: Path2D, colour: str, marker: str, ax: Axes) -> None:
    """A line with a white rim, a dot for every step, and a large marker where it ends."""
    xs, ys = zip(*path.places, strict=True)
    ax.plot(xs, ys, "-", color="white", linewidth=3.6, zorder=3)
    ax.plot(xs, ys, "-", color=colour, linewidth=1.5, marker=".", markersize=4.5, zorder=4)
    ax.plot(
        xs[-1], ys[-1], "-", marker=marker, label=path.label, color=colour, markersize=10,
        markeredgecolor="black", zorder=6,
    )  # fmt: skip


def _add_bar(filled: Any, axes: Axes | list[Axes], data: LandscapeData, which: str) -> None:
    """The colours of the levels; every third level has its number."""
    figure = (axes[0] if isinstance(axes, list) else axes).figure
    unseen = f"loss of the unseen domain, {data.unseen_name}"
    name = "mean loss of the source domains" if which == "source" else unseen
    levels = list(filled.levels)
    bar = figure.colorbar(filled, ax=axes, location="bottom", label=name, ticks=levels[::3], aspect=35)
    bar.ax.set_xticklabels([f"{level:.3g}" for level in levels[::3]])
    bar.ax.minorticks_off()


def draw_landscape(data: LandscapeData, folder: Path) -> tuple[Path, ...]:
    """Figure 5 with its numbers, and Figure 6 on a page of its own."""
    stars = "stars: networks trained on one domain alone, patch between them derived"
    title = f"{data.note}\n{stars}; markers: after the last step"
    figure, axes = panels(1, 2, 12, 7.4, sharey=True)
    for which, ax in zip(SURFACES, axes, strict=True):
        _add_bar(plot_landscape(data, which, ax), ax, data, which)
    axes[1].set_ylabel("")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle(title, fontsize="medium")
    files = save(figure, folder, "landscape", data.table())
    return (*files, *_draw_large(data, title, folder))


def _draw_large(data: LandscapeData, title: str, folder: Path) -> tuple[Path, ...]:
    """A row for each optimizer, a column for each loss."""
    figure, axes = panels(len(data.paths), 2, 8.3, 11, sharex=True, sharey=True)
    for n, path in enumerate(data.paths):
        for k, which in enumerate(SURFACES):
            ax = axes[2 * n + k]
            filled = plot_landscape(data, which, ax, only=path.label)
            loss = (path.source if which == "source" else path.unseen)[-1]
            ax.set_title(f"{path.label}: ends at a loss of {loss:.3f}", fontsize="medium")
            ax.set_ylabel("" if k else "y")
            ax.set_xlabel("x" if n == len(data.paths) - 1 else "")
            if n == len(data.paths) - 1:
                _add_bar(filled, axes[k::2], data, which)
    figure.suptitle(title, fontsize="medium")
    return save(figure, folder, "landscape-large")
