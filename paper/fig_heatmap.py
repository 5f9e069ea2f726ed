"""Which parameters move when, by optimizer (the paper's Figure 1 and its larger version, Figure 7).

Two rows of heatmaps: changes of the weights, and what the authors' figure adds up, changes of raw gradients.
Parameter IDs run upwards, and every layer has the same height: by its number of parameters the last few
layers would be all that is seen. Brightness is logarithmic and relative to the largest group of the step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import torch
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import LogNorm
from torch import Tensor, nn

from genie_dg.diagnostics.updates import Heatmap, UpdateRecorder

from .figure_setup import FigureSetup, OptimizerSetup, Table, figure_setup, panels, save
from .request import Request, Result

KINDS = {"weights": "weight changes", "gradients": "as published: changes of raw gradients"}
"""What is drawn, by the name in the CSV."""

GROUPS = 6
"""Groups of consecutive parameters in a layer, at most."""
FAINTEST = 1e-3
"""Of the largest group of the step; what moved less is drawn as this."""


@dataclass(frozen=True)
class Layer:
    """A part of the network by name, with the edges of its groups of parameters."""

    name: str
    edges: tuple[int, ...]


@dataclass(frozen=True)
class HeatmapsData:
    """A heatmap for each kind and optimizer, and the mean Gini coefficient of its rows by weight."""

    maps: dict[tuple[str, str], Heatmap]
    gini: dict[tuple[str, str], float]
    layers: tuple[Layer, ...]
    note: str

    def table(self) -> Table:
        """One row for each cell of each heatmap, to four digits."""
        names = {first: layer.name for layer in self.layers for first in layer.edges[:-1]}
        rows = [
            [*key, step, names[first], first, after - 1, float(f"{value:.4g}")]
            for key, one in self.maps.items()
            for step, row in zip(one.steps, one.values, strict=True)
            for (first, after), value in zip(pairwise(one.edges), row, strict=True)
        ]
        return ["kind", "optimizer", "step", "layer", "first_id", "last_id", "share_of_largest"], rows


def layers_of(sizes: Mapping[str, int], groups: int = GROUPS, most: int = 24) -> tuple[Layer, ...]:
    """Tensors that follow one another and share the beginning of a name, as finely as ``most`` layers allow.

    Args:
        sizes: the number of parameters of each tensor, by dotted name, in order.
        groups: a layer of n parameters is cut into this many, or n, groups whose sizes differ by one at most.
        most: layers.

    >>> for layer in layers_of({"featurizer.a.weight": 6, "featurizer.a.bias": 2, "head.weight": 1}, 2):
    ...     print(layer)
    Layer(name='a', edges=(0, 4, 8))
    Layer(name='head', edges=(8, 9))
    """
    deepest = max(name.count(".") for name in sizes)
    for depth in range(max(deepest, 1), 0, -1):  # the last word, weight or bias, names no layer
        spans: list[tuple[str, int]] = []
        for name, size in sizes.items():
            words = name.split(".")
            short = ".".join(words[: min(depth, max(1, len(words) - 1))])
            if spans and spans[-1][0] == short:
                spans[-1] = short, spans[-1][1] + size
            else:
                spans.append((short, size))
        if len(spans) <= most:
            break
    layers, first = [], 0
    for name, size in spans:
        count = min(groups, size)
        words = [word.lstrip("_") for word in name.split(".") if word not in ("featurizer", "network")]
        readable = " ".join(words) or name
        edges = tuple(first + k * size // count for k in range(count + 1))
        layers.append(Layer(readable, edges))
        first += size
    return tuple(layers)


class GradientChanges:
    r"""What the authors' Figure 1 adds up: :math:`\sum_t |g_t - g_{t-1}|` of raw gradients; not a movement.

    An optimizer divides, averages and masks gradients before it moves a weight, so these sums do not tell what
    moved: with the same gradients they are the same for every optimizer. Offered for comparison with the
    published picture only. Call `add` after every step; an `UpdateRecorder` over ``sums.items()`` then records
    the sum of each group since the last record.

    >>> w = torch.nn.Parameter(torch.zeros(2))
    >>> changes = GradientChanges([("w", w)])
    >>> for gradient in ([1.0, 2.0], [4.0, 2.0], [3.0, 7.0]):
    ...     w.grad = torch.tensor(gradient)
    ...     changes.add()
    >>> changes.sums["w"].tolist()  # |4 - 1| + |3 - 4| and |2 - 2| + |7 - 2|
    [4.0, 5.0]
    """

    def __init__(self, named: Iterable[tuple[str, Tensor]]) -> None:
        self._parameters = {name: p for name, p in named if p.requires_grad}
        self._before: dict[str, Tensor] = {}
        self.sums = {name: torch.zeros_like(p, requires_grad=True) for name, p in self._parameters.items()}

    @torch.no_grad()
    def add(self) -> None:
        """Add what changed since the gradients of the last call; a parameter without one counts as zero."""
        for name, p in self._parameters.items():
            gradient = torch.zeros_like(p) if p.grad is None else p.grad.detach().clone()
            if name in self._before:
                self.sums[name].add_((gradient - self._before[name]).abs())
            self._before[name] = gradient


def heatmaps_data(setup: FigureSetup, points: int = 50) -> HeatmapsData:
    """Train with each optimizer; every ``steps / points`` steps record what moved since the last time."""
    maps: dict[tuple[str, str], Heatmap] = {}
    ginis: dict[tuple[str, str], float] = {}
    every = max(1, setup.config.steps // points)
    for optimizer in setup.optimizers:
        layers, recorders, measured = _record(setup, optimizer, every)
        for kind, recorder in recorders.items():
            maps[kind, optimizer.label] = recorder.heatmap().normalised()
            ginis[kind, optimizer.label] = fmean(measured[kind])
    ordered = {(kind, one.label): maps[kind, one.label] for kind in KINDS for one in setup.optimizers}
    return HeatmapsData(ordered, ginis, layers, setup.note)


def _record(
    setup: FigureSetup, optimizer: OptimizerSetup, every: int
) -> tuple[tuple[Layer, ...], dict[str, UpdateRecorder], dict[str, list[float]]]:
    """One training run: the layers, a recorder for each kind, and its Gini coefficients."""
    ginis: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for step, parts in setup.train(optimizer):
        if step == 0:
            network: nn.Module = parts.algorithm.network
            layers = layers_of({n: p.numel() for n, p in network.named_parameters() if p.requires_grad})
            edges = [0, *(edge for layer in layers for edge in layer.edges[1:])]
            changes = GradientChanges(network.named_parameters())
            recorders = {
                "weights": UpdateRecorder(network, bins=edges),
                "gradients": UpdateRecorder(changes.sums.items(), bins=edges),
            }
            continue
        changes.add()
        if step % every == 0:
            for kind, recorder in recorders.items():
                ginis[kind].append(recorder.record(step).get("gini", float("nan")))
    return layers, recorders, ginis


def heights(layers: Sequence[Layer]) -> list[float]:
    """Where the edges of all groups are drawn: layer k from k to k + 1, its groups in equal parts of it.

    >>> heights([Layer("a", (0, 4, 8)), Layer("b", (8, 9))])
    [0.0, 0.5, 1.0, 2.0]
    """
    places = [0.0]
    for k, layer in enumerate(layers):
        count = len(layer.edges) - 1
        places += [k + (j + 1) / count for j in range(count)]
    return places


def plot_heatmap(data: HeatmapsData, kind: str, label: str, ax: Axes) -> QuadMesh:
    """Draw one optimizer's heatmap; the caller adds the bar of colours, which all share."""
    one = data.maps[kind, label]
    columns = [[max(value, FAINTEST) for value in column] for column in zip(*one.values, strict=True)]
    mesh: QuadMesh = ax.pcolormesh(
        [0, *one.steps], heights(data.layers), columns, cmap="viridis", norm=LogNorm(FAINTEST, 1),
        rasterized=True,
    )  # fmt: skip
    for k in range(1, len(data.layers)):
        ax.axhline(k, color="white", linewidth=0.3)
    names = [layer.name for layer in data.layers]
    ax.set_yticks([k + 0.5 for k in range(len(names))], names, fontsize="small")
    ax.tick_params(axis="y", length=0)
    ax.locator_params(axis="x", integer=True)
    ax.set_title(f"{label}, Gini coefficient {data.gini[kind, label]:.2f}", fontsize="medium")
    return mesh


def draw_heatmaps(data: HeatmapsData, folder: Path) -> tuple[Path, ...]:
    """Both kinds beside one another (Figure 1), and the weight changes alone on a page (Figure 7)."""
    labels = list(dict.fromkeys(label for _, label in data.maps))
    figure, axes = panels(2, len(labels), 15, 10, sharex=True, sharey=True)
    for n, kind in enumerate(KINDS):
        for k, label in enumerate(labels):
            mesh = plot_heatmap(data, kind, label, axes[n * len(labels) + k])
        axes[n * len(labels)].set_ylabel(f"{KINDS[kind]}\n(layers, first to last)")
    for ax in axes[len(labels) :]:
        ax.set_xlabel("step")
    figure.colorbar(mesh, ax=axes, label="mean of a group / largest of the step", extend="min", aspect=50)
    figure.suptitle(data.note, fontsize="medium")
    files = save(figure, folder, "heatmap", data.table())
    figure, axes = panels(2, 2, 8.3, 11, sharex=True, sharey=True)
    for label, ax in zip(labels, axes, strict=True):
        mesh = plot_heatmap(data, "weights", label, ax)
    for ax in axes[2:]:
        ax.set_xlabel("step")
    figure.colorbar(
        mesh, ax=axes, label="mean |weight change| of a group / largest of the step", extend="min",
        location="bottom", aspect=50,
    )  # fmt: skip
    figure.suptitle(f"weight changes; {data.note}", fontsize="medium")
    return (*files, *save(figure, folder, "heatmap-large"))


def make_heatmap(request: Request) -> Result:
    """Measure, draw, write."""
    setup = figure_setup(request, "styleshapes", 100, "VLCS", pretrained=True)
    print(f"Updates on {setup.note}, four optimizers", flush=True)
    data = heatmaps_data(setup, 10 if request.scale == "smoke" else 50)
    files = draw_heatmaps(data, request.out)
    lines = [
        f"- {words}: "
        + ", ".join(f"{label} {value:.2f}" for (k, label), value in data.gini.items() if k == kind)
        for kind, words in KINDS.items()
    ]
    text = f"Updates by parameter on {data.note}. Mean Gini coefficient by weight (0: all move alike):\n"
    return Result(text + "\n".join(lines), files)
