"""The registry of the paper's tables and figures, open to the user's own."""

from __future__ import annotations

from functools import partial

from genie_dg.registry import Registry

from .coverage import make_coverage
from .fig_heatmap import make_heatmap
from .fig_landscape import make_landscape
from .fig_osgr import make_osgr
from .fig_umap import make_umap
from .ledger import make_claims
from .logged_page import make_logged
from .request import PaperRow
from .summary import make_summary
from .tables import make_table

SUMMARIES = {
    "optimizers": (
        "Table 2, Tables 9-13",
        "optimizers under ERM: averages by data set, and accuracy by test domain",
    ),
    "iterations": (
        "Table 3, Tables 14-16",
        "training time and accuracy after a third, two thirds and all of the steps",
    ),
    "single-source": ("Table 4, Tables 21-24", "train on one domain, test on the others"),
    "integration": ("Table 5, Tables 17-20", "GENIE and others inside DG algorithms"),
    "ablation": ("Table 6", "GENIE with preconditioning, noise and mask switched off"),
    "sensitivity": ("Figure 2", "accuracy against GENIE's p and beta"),
}
"""Where each table of `make_table` stands in the paper, and what it shows."""

TABLES = tuple(
    PaperRow(name, *words, partial(make_table, name), own_sets=True) for name, words in SUMMARIES.items()
)

FIGURES = (
    PaperRow(
        "osgr",
        "Figure 4",
        "OSGR over training by optimizer: by the definition and in the theorem's form, with intervals",
        make_osgr,
    ),
    PaperRow("heatmap", "Figures 1, 7", "which parameters move when, by optimizer", make_heatmap),
    PaperRow(
        "landscape",
        "Figures 5, 6",
        "30 steps of three optimizers on a slice of the loss between minima of single domains",
        make_landscape,
        extra_sets=("FashionMNIST",),
    ),
    PaperRow("umap", "Figure 3", "features before and after training with three optimizers", make_umap),
)

CLAIMS_ROW = PaperRow(
    "claims",
    "all claims",
    "every claim of the paper: measured how, with which interval, and whether it holds",
    make_claims,
)

LOGGED_ROW = PaperRow(
    "logged",
    "all tables, Figures 2, 4",
    "what the logs of the authors' runs say: accuracies, times, batch sizes, OSGR curves",
    make_logged,
)

COVERAGE_ROW = PaperRow(
    "coverage",
    "all of it",
    "every definition, theorem, table, figure and setting: command, state, verdict",
    make_coverage,
)

SUMMARY_ROW = PaperRow(
    "summary",
    "all claims",
    "how many claims hold in each regime, and the answers that are asked for first",
    make_summary,
)

PAPER = Registry(
    "part of the paper",
    (*TABLES, *FIGURES, CLAIMS_ROW, SUMMARY_ROW, LOGGED_ROW, COVERAGE_ROW),
    PaperRow,
    "genie_dg.paper",
)
"""By name, in the order of the paper."""
