"""The paper's tables and figures, in the order of the paper."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from .fig_heatmap import make_heatmap
from .fig_landscape import make_landscape
from .fig_osgr import make_osgr
from .fig_umap import make_umap
from .ledger import make_claims
from .logged_page import make_logged
from .pages import make_coverage, make_summary
from .request import Request, Result
from .tables import make_table


@dataclass(frozen=True)
class PaperRow:
    """One table or figure.

    Args:
        name: as the command calls it.
        where: in the paper: "Table 2", "Figure 4".
        summary: what it shows.
        make: does it.
        own_sets: at scale ``paper`` it has the paper's data sets and takes no others.
        extra_sets: names that it takes as data although no registry has them.
    """

    name: str
    where: str
    summary: str
    make: Callable[[Request], Result]
    own_sets: bool = False
    extra_sets: tuple[str, ...] = ()


def _table(name: str, where: str, summary: str) -> PaperRow:
    return PaperRow(name, where, summary, partial(make_table, name), own_sets=True)


ROWS = (
    _table(
        "optimizers", "Table 2, Tables 9-13",
        "optimizers under ERM: averages by data set, and accuracy by test domain",
    ),
    _table(
        "iterations", "Table 3, Tables 14-16",
        "training time and accuracy after a third, two thirds and all of the steps",
    ),
    _table("single-source", "Table 4, Tables 21-24", "train on one domain, test on the others"),
    _table("integration", "Table 5, Tables 17-20", "GENIE and others inside DG algorithms"),
    _table("ablation", "Table 6", "GENIE with preconditioning, noise and mask switched off"),
    _table("sensitivity", "Figure 2", "accuracy against GENIE's p and beta"),
    PaperRow(
        "osgr", "Figure 4",
        "OSGR over training by optimizer: by the definition and in the theorem's form, with intervals",
        make_osgr,
    ),
    PaperRow("heatmap", "Figures 1, 7", "which parameters move when, by optimizer", make_heatmap),
    PaperRow(
        "landscape", "Figures 5, 6",
        "30 steps of three optimizers on a slice of the loss between minima of single domains",
        make_landscape, extra_sets=("FashionMNIST",),
    ),
    PaperRow("umap", "Figure 3", "features before and after training with three optimizers", make_umap),
    PaperRow(
        "claims", "all claims",
        "every claim of the paper: measured how, with which interval, and whether it holds", make_claims,
    ),
    PaperRow(
        "summary", "all claims",
        "how many claims hold in each regime, and the answers that are asked for first", make_summary,
    ),
    PaperRow(
        "logged", "all tables, Figures 2, 4",
        "what the logs of the authors' runs say: accuracies, times, batch sizes, OSGR curves", make_logged,
    ),
    PaperRow(
        "coverage", "all of it",
        "every definition, theorem, table, figure and setting: command, state, verdict", make_coverage,
    ),
)  # fmt: skip

PAPER = {row.name: row for row in ROWS}
"""By name."""
