"""The figures of the paper that are not tables in disguise, one row each."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from ._base import Made, PaperRow, Request


def _later(module: str, function: str) -> Callable[[Request], Made]:
    """A figure whose module, and with it torch, is imported when it is made."""

    def make(request: Request) -> Made:
        made: Made = getattr(import_module(f"{__package__}.{module}"), function)(request)
        return made

    return make


ROWS = [
    PaperRow(
        "osgr",
        "Figure 4",
        "OSGR over training by optimizer: by the definition and in the theorem's form, with intervals",
        _later("fig_osgr", "make_osgr"),
    ),
    PaperRow(
        "heatmap",
        "Figure 1",
        "which parameters move when, by optimizer",
        _later("fig_heatmap", "make_heatmap"),
    ),
    PaperRow(
        "landscape",
        "Figure 5",
        "30 steps of three optimizers on a slice of the loss between minima of single domains",
        _later("fig_landscape", "make_landscape"),
    ),
    PaperRow(
        "umap",
        "Figure 3",
        "features before and after training with three optimizers",
        _later("fig_umap", "make_umap"),
    ),
]
