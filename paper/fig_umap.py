"""Features before and after training (the paper's Figure 3): UMAP where it is installed, else t-SNE.

The title says which. With t-SNE the features are first reduced to 50 principal components. Beside the picture
stands a number that needs no picture: how often the nearest source feature of a target sample has its class.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from torch import Tensor, nn

from genie_dg.bench.assemble import Parts
from genie_dg.results.figures import COLOURS

from .figure_setup import FigureSetup, Table, figure_setup, panels, samples, save
from .request import Request, Result, Scale

MOST = 105
"""Samples of each domain that are drawn, at most: more cannot be told apart."""

LETTERS = "ABCD"
"""Of the panels, as in the paper."""

Points = np.ndarray[tuple[int, int], np.dtype[np.float64]]
Embed = Callable[[Tensor], Points]


@dataclass(frozen=True)
class FeaturePanel:
    """Points of one network: position, class and domain of each, and the nearest-source accuracy."""

    title: str
    points: list[tuple[float, float]]
    nearest: float


@dataclass(frozen=True)
class FeaturesData:
    """The panels; classes and domains are the same in all of them."""

    panels: list[FeaturePanel]
    classes: list[str]
    labels: list[int]
    domains: list[str]
    targets: list[bool]
    method: str
    note: str

    def table(self) -> Table:
        """One row for each point of each panel; the share that its title shows is the same in all its rows."""
        rows = [
            [panel.title, domain, int(target), self.classes[label], *point, round(panel.nearest, 4)]
            for panel in self.panels
            for point, label, domain, target in zip(
                panel.points, self.labels, self.domains, self.targets, strict=True
            )
        ]
        return ["panel", "domain", "unseen", "class", "x", "y", "nearest_source"], rows


def embedding(scale: Scale) -> tuple[str, Embed]:
    """The name of what reduces features to two dimensions here, and the function.

    ``smoke`` has t-SNE always: UMAP takes half a minute to compile.
    """
    if scale == "smoke":
        return "t-SNE of principal components", tsne
    if find_spec("umap") is None:
        return "t-SNE of principal components (umap-learn is not installed)", tsne
    return "UMAP", umap


def umap(features: Tensor) -> Points:
    """UMAP with its defaults, from one seed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ImportWarning)  # about a part that needs TensorFlow
        reducer = importlib.import_module("umap").UMAP(random_state=0, n_jobs=1)
    return np.asarray(reducer.fit_transform(features.numpy()), np.float64)


def tsne(features: Tensor) -> Points:
    """t-SNE of up to 50 principal components, started from the first two."""
    from sklearn.decomposition import PCA  # type: ignore[import-untyped]
    from sklearn.manifold import TSNE  # type: ignore[import-untyped]

    x = features.double().numpy()
    x = PCA(min(50, *x.shape), random_state=0).fit_transform(x)
    perplexity = min(30.0, (len(x) - 1) / 3)
    return np.asarray(TSNE(perplexity=perplexity, init="pca", random_state=0).fit_transform(x), np.float64)


def nearest_source(features: Tensor, labels: Tensor, target: Tensor) -> float:
    """The share of target samples whose nearest source sample, by cosine, has the same class.

    >>> f = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 0.1], [0.9, 1.0]])
    >>> nearest_source(f, torch.tensor([0, 1, 0, 0]), torch.tensor([False, False, True, True]))
    0.5
    """
    unit = nn.functional.normalize(features.double(), dim=1)
    closest = (unit[target] @ unit[~target].T).argmax(1)
    return float((labels[~target][closest] == labels[target]).double().mean())


def features_data(setup: FigureSetup, most: int = MOST, scale: Scale = "cpu") -> FeaturesData:
    """Train with SGD, Adam and GENIE from the same weights and embed the features of all domains."""
    data, c = setup.data, setup.config
    shown = min(len(COLOURS), len(data.classes))
    images, labels, domains = [], [], []
    for k in range(len(data.domains)):
        x, y = samples(data, [k], c.image_size, most * len(data.classes) // shown)
        keep = y < shown
        images.append(x[keep])
        labels.append(y[keep])
        domains += [k] * int(keep.sum())
    x, y = torch.cat(images), torch.cat(labels)
    target = torch.tensor([k in c.test_domains for k in domains])
    method, embed = embedding(scale)
    panels: list[FeaturePanel] = []

    @torch.no_grad()
    def add(title: str, parts: Parts) -> None:
        network = parts.algorithm.network.eval()
        features = torch.cat([network.features(part.to(setup.device)).cpu() for part in torch.split(x, 64)])
        points = [(float(a), float(b)) for a, b in embed(features)]
        panels.append(FeaturePanel(title, points, nearest_source(features, y, target)))

    for optimizer in setup.optimizers:
        for step, parts in setup.train(optimizer):
            if step == 0 and not panels:
                add("before training", parts)
        add(optimizer.label, parts)
    names = [data.domains[k].name for k in domains]
    classes = list(data.classes[:shown])
    return FeaturesData(panels, classes, y.tolist(), names, target.tolist(), method, setup.note)


def plot_features(data: FeaturesData, index: int, ax: Axes) -> Axes:
    """Draw one panel: colour is the class, a dot is a source domain, a cross the unseen one."""
    panel = data.panels[index]
    places = np.array(panel.points)
    labels, target = np.array(data.labels), np.array(data.targets)
    for k in range(len(data.classes)):
        of_class = labels == k
        seen, unseen = places[of_class & ~target], places[of_class & target]
        ax.scatter(seen[:, 0], seen[:, 1], s=14, color=COLOURS[k], alpha=0.5, linewidths=0)
        ax.scatter(unseen[:, 0], unseen[:, 1], s=30, color=COLOURS[k], marker="x", linewidths=1.3)
    title = f"({LETTERS[index]}) {panel.title}"
    ax.set_title(f"{title}; nearest source sample has the class: {panel.nearest:.0%}", fontsize="medium")
    ax.set_xticks([])  # coordinates have no unit
    ax.set_yticks([])
    return ax


def draw_features(data: FeaturesData, folder: Path) -> tuple[Path, ...]:
    """All panels, and one legend below."""
    figure, axes = panels(2, 2, 11, 9)
    for index, ax in enumerate(axes):
        plot_features(data, index, ax)
    figure.legend(handles=_legend(data), loc="outside lower center", ncols=5, frameon=False)
    figure.suptitle(f"{data.method}; {data.note}", fontsize="medium")
    return save(figure, folder, "umap", data.table())


def make_umap(request: Request) -> Result:
    """Train, embed, draw, write."""
    setup = figure_setup(request, "styleshapes", 100, "PACS", pretrained=True)
    setup = replace(setup, optimizers=tuple(one for one in setup.optimizers if one.label != "SAM"))
    print(f"Features on {setup.note}, before and after training with three optimizers", flush=True)
    data = features_data(setup, 21 if request.scale == "smoke" else MOST, request.scale)
    files = draw_features(data, request.out)
    nearest = ", ".join(f"{panel.title} {panel.nearest:.0%}" for panel in data.panels)
    found = f"Target samples whose nearest source sample has their class: {nearest}."
    return Result(f"Features by {data.method} on {data.note}. {found}", files)


def _legend(data: FeaturesData) -> list[Line2D]:
    unseen = sorted({name for name, target in zip(data.domains, data.targets, strict=True) if target})
    marks: list[tuple[str, str, str, int | None]]
    marks = [("s", COLOURS[k], name, None) for k, name in enumerate(data.classes)]
    marks += [("o", "0.4", "source domains", 4), ("x", "0.2", f"unseen: {', '.join(unseen)}", None)]
    return [
        Line2D([], [], marker=mark, linestyle="", color=colour, label=name, markersize=size)
        for mark, colour, name, size in marks
    ]
