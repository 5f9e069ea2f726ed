"""Which parameters move when, by optimizer (the paper's Figure 1 and its detailed version).

What is drawn are changes of the weights; the authors' figure sums changes of raw gradients.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from genie_dg.diagnostics.updates import UpdateRecorder
from genie_dg.report.figures import HeatmapData, Row, heatmap_data, plot_update_heatmap

from .figure_setup import FigureSetup, figure_setup, panels, save
from .request import Request, Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class HeatmapsData:
    """A heatmap for each optimizer, and the mean Gini coefficient of its rows."""

    maps: dict[str, HeatmapData]
    gini: dict[str, float]
    note: str

    def table(self) -> tuple[list[str], list[Row]]:
        """One row for each cell of each heatmap, to four digits."""
        rows: list[Row] = []
        header: list[str] = []
        for label, one in self.maps.items():
            header, cells = one.table()
            rows += [
                [label, *(float(f"{x:.4g}") if isinstance(x, float) else x for x in cell)] for cell in cells
            ]
        return ["optimizer", *header], rows


def heatmaps_data(setup: FigureSetup, points: int = 50, bins: int = 120) -> HeatmapsData:
    """Train with each optimizer; every ``steps / points`` steps record what moved since the last time."""
    every = max(1, setup.config.steps // points)
    maps, mean_ginis = {}, {}
    for optimizer in setup.optimizers:
        ginis: list[float] = []
        for step, parts in setup.train(optimizer):
            if step == 0:
                recorder = UpdateRecorder(parts.algorithm.network, bins=bins)
            elif step % every == 0:
                ginis.append(recorder.record(step).get("gini", float("nan")))
        heat = recorder.heatmap()
        maps[optimizer.label] = heatmap_data(heat.steps, heat.values, heat.edges, heat.boundaries, start=0)
        mean_ginis[optimizer.label] = fmean(ginis)
    return HeatmapsData(maps, mean_ginis, setup.note)


def plot_heatmap(data: HeatmapsData, label: str, ax: Axes) -> Axes:
    """Draw one optimizer's heatmap."""
    plot_update_heatmap(data.maps[label], ax)
    ax.set_title(f"{label} (mean Gini coefficient {data.gini[label]:.2f})")
    return ax


def make_heatmap(request: Request) -> Result:
    """Measure, draw, write."""
    setup = figure_setup(request, "styleshapes", 100, "VLCS", pretrained=True)
    request.say(f"Updates on {setup.note}, four optimizers")
    data = heatmaps_data(setup, 10 if request.scale == "smoke" else 50)
    figure, axes = panels(2, 2, 14, 8.5)
    for label, ax in zip(data.maps, axes, strict=True):
        plot_heatmap(data, label, ax)
    figure.suptitle(f"|weight change| by group of parameters; {data.note}", fontsize="medium")
    files = save(figure, request.out, "heatmap", data)
    gini = ", ".join(f"{label} {value:.2f}" for label, value in data.gini.items())
    return Result(
        f"Updates by parameter on {data.note}. Mean Gini coefficient (0: all move alike): {gini}.", files
    )
