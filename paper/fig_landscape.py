r"""Trajectories on a slice of the loss whose corners are minima of single domains (the paper's Figure 5).

There is no public code for this figure; what follows is derived from its description. From one initial network
four networks are trained, each on one source domain alone; their weights :math:`\theta_1, \dots, \theta_4` are
the corners :math:`(\mp 4, \mp 4)` of a bilinear patch of weight space,

.. math::
    \theta(x, y) = (1-u)(1-v)\,\theta_1 + u(1-v)\,\theta_2 + (1-u)v\,\theta_3 + uv\,\theta_4, \qquad
    u = \frac{x + 4}{8}, \quad v = \frac{y + 4}{8} .

Every optimizer starts at (-1, 3) and takes 30 steps in the two numbers x and y, with gradients on the same
batches of the source domains. One panel shows the mean loss of the source domains, one the loss of a domain
that was never trained on. Figure 6, the same on a page, has a row for each optimizer. The start, the batches,
the number of steps, the axes, the levels and the colours are the same for all.

The pictures of `fig_landscape`: all trajectories in one panel (Figure 5), and a panel for each (Figure 6).

Every panel of one loss has the same axes, contour levels and colours. Levels are quantiles of the loss on the
grid, so that lines are dense in the basin, where the trajectories are, however steep its walls are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from genie_dg.data.domains import DomainSet
from genie_dg.data.published.mnist import FASHION, rotated_mnist
from genie_dg.data.registry import folder_of, open_data
from genie_dg.models.classifier import build_network
from genie_dg.optim.registry import build_optimizer
from genie_dg.results.figures import COLOURS

from .figure_setup import OptimizerSetup, Table, panels, samples, save
from .request import NeedsData, PaperError, Request, Result

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
    drawn: dict[str, Any] = {"levels": levels, "norm": norm, "cmap": "Greys", "alpha": 0.5, "extend": "both"}
    filled = ax.contourf(data.axis, data.axis, grid, **drawn)
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
    end: dict[str, Any] = {"marker": marker, "markersize": 10, "markeredgecolor": "black", "zorder": 6}
    ax.plot(xs[-1], ys[-1], "-", label=path.label, color=colour, **end)


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


START, STEPS, CORNER = (-1.0, 3.0), 30, 4.0
"""The published start and length, and the coordinate of the corners (not published)."""

OPTIMIZERS = (
    OptimizerSetup("SGD", "sgd", {"lr": 1.0, "momentum": 0.0}),
    OptimizerSetup("Adam", "adam", {"lr": 0.15}),
    OptimizerSetup("GENIE", "genie", {"lr": 1.0}),
)
"""Learning rates for the two coordinates, whose unit is an eighth of the patch; not published, not tuned."""


Pool = tuple[Tensor, Tensor]
"""Images and labels."""


@dataclass(frozen=True)
class Path2D:
    """The places of one optimizer, with the losses there."""

    label: str
    places: list[tuple[float, float]]
    source: list[float]
    unseen: list[float]


@dataclass(frozen=True)
class LandscapeData:
    """Losses on a grid (``source[row of y][column of x]``), trajectories, names and places of the corners."""

    axis: list[float]
    source: list[list[float]]
    unseen: list[list[float]]
    paths: list[Path2D]
    corners: list[tuple[str, float, float]]
    unseen_name: str
    note: str

    @property
    def levels(self) -> dict[str, list[float]]:
        """Of the contours, by loss: the same for every optimizer."""
        return {"source": contour_levels(self.source), "unseen": contour_levels(self.unseen)}

    def table(self) -> Table:
        """The points of the trajectories, the corners, the levels of the contours, then the grid."""
        rows: list[list[object]] = [
            [path.label, step, *place, path.source[step], path.unseen[step]]
            for path in self.paths
            for step, place in enumerate(path.places)
        ]
        rows += [[f"corner {name}", "", x, y, "", ""] for name, x, y in self.corners]
        rows += [["level", k, "", "", level, ""] for k, level in enumerate(self.levels["source"])]
        rows += [["level", k, "", "", "", level] for k, level in enumerate(self.levels["unseen"])]
        rows += [
            ["grid", "", x, y, self.source[i][j], self.unseen[i][j]]
            for i, y in enumerate(self.axis)
            for j, x in enumerate(self.axis)
        ]
        return ["label", "step", "x", "y", "source_loss", "unseen_loss"], rows


class Patch:
    """The bilinear patch through four networks of one form."""

    def __init__(self, model: nn.Module, corners: list[dict[str, Tensor]]) -> None:
        self.model = model
        self.corners = {name: torch.stack([one[name] for one in corners]) for name in corners[0]}

    def loss(self, place: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """The mean loss of the network at a place, differentiable in the place."""
        u, v = (place / CORNER + 1) / 2
        shares = torch.stack([(1 - u) * (1 - v), u * (1 - v), (1 - u) * v, u * v])
        weights = {name: torch.tensordot(shares, four, 1) for name, four in self.corners.items()}
        return F.cross_entropy(functional_call(self.model, weights, (x,)), y)


def landscape_data(
    data: DomainSet, corner_steps: int = 300, cells: int = 33, batch: int = 32, most: int = 300, seed: int = 0
) -> LandscapeData:
    """Train the corners, follow the optimizers, evaluate the grid.

    Args:
        data: five domains or more; the first four are the corners, the last is unseen.
        corner_steps: of Adam, for each corner.
        cells: places on each axis of the grid.
        batch: samples of each source domain in a step of an optimizer.
        most: samples of each domain, at most.
        seed: of the initial weights and the batches.
    """
    if len(data.domains) < 5:
        raise PaperError(f"{data.name} has {len(data.domains)} domains; give a set with five or more: digits.")
    pools = [samples(data, [k], 32, most) for k in (0, 1, 2, 3, len(data.domains) - 1)]
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        channels, size = pools[0][0].shape[1], pools[0][0].shape[-1]
        model = build_network("mlp", len(data.classes), channels, size)
    first = {name: p.detach().clone() for name, p in model.named_parameters()}
    corners = [_minimum(model, first, pool, corner_steps, batch, generator) for pool in pools[:4]]
    patch = Patch(model, corners)
    everything = torch.cat([x for x, _ in pools[:4]]), torch.cat([y for _, y in pools[:4]])
    draws = [_draw(pools[:4], batch, generator) for _ in range(STEPS)]
    paths = [_trajectory(patch, one, draws, everything, pools[4]) for one in OPTIMIZERS]
    reach = max(abs(coordinate) for path in paths for place in path.places for coordinate in place)
    edge = max(1.35 * CORNER, reach + 0.5)
    axis = np.linspace(-edge, edge, cells).tolist()
    with torch.no_grad():
        source, unseen = (
            [[float(patch.loss(torch.tensor([x, y]), *pool)) for x in axis] for y in axis]
            for pool in (everything, pools[4])
        )
    names = [domain.name for domain in data.domains]
    places = [(-CORNER, -CORNER), (CORNER, -CORNER), (-CORNER, CORNER), (CORNER, CORNER)]
    marks = [(name, *place) for name, place in zip(names[:4], places, strict=True)]
    note = f"{data.name}, perceptron, {STEPS} steps from ({START[0]:g}, {START[1]:g})"
    return LandscapeData(axis, source, unseen, paths, marks, names[-1], note)


def _minimum(
    model: nn.Module, first: dict[str, Tensor], pool: Pool, steps: int, batch: int, generator: torch.Generator
) -> dict[str, Tensor]:
    """Weights that were trained on one domain alone."""
    x, y = pool
    model.load_state_dict(first)
    optimizer = build_optimizer("adam", model.parameters(), lr=1e-3)
    for _ in range(steps):
        rows = torch.randint(len(y), (batch,), generator=generator)
        optimizer.zero_grad()
        F.cross_entropy(model(x[rows]), y[rows]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def _draw(pools: list[Pool], batch: int, generator: torch.Generator) -> Pool:
    rows = [torch.randint(len(y), (batch,), generator=generator) for _, y in pools]
    drawn = [(x[r], y[r]) for (x, y), r in zip(pools, rows, strict=True)]
    return torch.cat([x for x, _ in drawn]), torch.cat([y for _, y in drawn])


def _trajectory(patch: Patch, setup: OptimizerSetup, draws: list[Pool], source: Pool, unseen: Pool) -> Path2D:
    """Where an optimizer goes on the patch."""
    place = nn.Parameter(torch.tensor(START))
    optimizer = build_optimizer(setup.optimizer, [place], **setup.settings)
    label = f"{setup.label} (lr {setup.settings['lr']:g})"
    path = Path2D(label, [], [], [])

    def note() -> None:
        x, y = place.detach().tolist()
        path.places.append((x, y))
        with torch.no_grad():
            path.source.append(float(patch.loss(place, *source)))
            path.unseen.append(float(patch.loss(place, *unseen)))

    note()
    for x, y in draws:
        optimizer.zero_grad()
        patch.loss(place, x, y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        note()
    return path


def landscape_set(request: Request) -> DomainSet:
    """FashionMNIST turned by 0 to 60 degrees where its folder was given, else the embedded digits."""
    published = request.scale == "paper" and not request.data
    if published and request.root is None:
        raise NeedsData("The paper's scale needs FashionMNIST; name the folder that holds its own with --root.")
    if not published and request.data != "FashionMNIST":
        return open_data(request.data or "digits", request.root)
    folder = folder_of("FashionMNIST", request.root, ("FashionMNIST", "fashion-mnist"))
    angles = (0, 15, 30, 45, 60)
    return rotated_mnist(folder, angles=angles, name="RotatedFashionMNIST", classes=FASHION)


def make_landscape(request: Request) -> Result:
    """Train the corners, follow the optimizers, draw, write."""
    data = landscape_set(request)
    print(f"Loss landscape on {data.name}: four corners, three optimizers", flush=True)
    steps, cells = {"smoke": (40, 9), "cpu": (300, 49), "paper": (2000, 65)}[request.scale]
    landscape = landscape_data(data, steps, cells, most=2000 if request.scale == "paper" else 300)
    files = draw_landscape(landscape, request.out)
    ends = "\n".join(
        f"- {p.label}: ends at ({p.places[-1][0]:.1f}, {p.places[-1][1]:.1f}), source loss {p.source[-1]:.3f}, "
        f"unseen loss {p.unseen[-1]:.3f}"
        for p in landscape.paths
    )
    return Result(f"Trajectories on {landscape.note}; derived, there is no public code.\n{ends}", files)
