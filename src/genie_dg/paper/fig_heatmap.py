"""Which parameters move when, by optimizer (the paper's Figure 1 and its detailed version).

What is drawn are changes of the weights; the authors' figure sums changes of raw gradients.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from genie_dg.bench.assemble import Parts
from genie_dg.diagnostics import UpdateRecorder
from genie_dg.report.curves import Row
from genie_dg.report.update_heatmap import HeatmapData, heatmap_data, plot_update_heatmap

from ._base import Made, Request
from ._figure import Contender, Stage, device_of, stage_of, walk
from ._picture import panels, save

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


def heatmaps_data(stage: Stage, points: int = 50, bins: int = 120, device: str = "cpu") -> HeatmapsData:
    """Train with each optimizer; every ``steps / points`` steps record what moved since the last time."""
    every = max(1, stage.config.steps // points)
    maps, ginis = {}, {}
    for contender in stage.contenders:
        recorders: list[UpdateRecorder] = []
        found: list[float] = []

        def look(
            step: int,
            parts: Parts,
            recorders: list[UpdateRecorder] = recorders,
            found: list[float] = found,
            contender: Contender = contender,
        ) -> None:
            stage.progress(contender, step)
            if step == 0:
                recorders.append(UpdateRecorder(parts.algorithm.network, bins=bins))
            elif step % every == 0:
                found.append(recorders[0].record(step).get("gini", float("nan")))

        walk(contender.on(stage.config), stage.data, look, device)
        heat = recorders[0].heatmap()
        maps[contender.label] = heatmap_data(heat.steps, heat.values, heat.edges, heat.boundaries, start=0)
        ginis[contender.label] = fmean(found)
    return HeatmapsData(maps, ginis, stage.note)


def plot_heatmap(data: HeatmapsData, label: str, ax: Axes) -> Axes:
    """Draw one optimizer's heatmap."""
    plot_update_heatmap(data.maps[label], ax)
    ax.set_title(f"{label} (mean Gini coefficient {data.gini[label]:.2f})")
    return ax


def make_heatmap(request: Request) -> Made:
    """Measure, draw, write."""
    stage = stage_of(request, "styleshapes", 100, "VLCS", pretrained=True)
    request.say(f"Updates on {stage.note}, four optimizers")
    data = heatmaps_data(stage, 10 if request.scale == "smoke" else 50, device=device_of(request.scale))
    figure, axes = panels(2, 2, 14, 8.5)
    for label, ax in zip(data.maps, axes, strict=True):
        plot_heatmap(data, label, ax)
    figure.suptitle(f"|weight change| by group of parameters; {data.note}", fontsize="medium")
    files = save(figure, request.out, "heatmap", data)
    gini = ", ".join(f"{label} {value:.2f}" for label, value in data.gini.items())
    return Made(
        f"Updates by parameter on {data.note}. Mean Gini coefficient (0: all move alike): {gini}.", files
    )
