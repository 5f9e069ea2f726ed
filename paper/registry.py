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
    """

    name: str
    where: str
    summary: str
    make: Callable[[Request], Result]
    own_sets: bool = False


def _table(name: str, where: str, summary: str) -> PaperRow:
    return PaperRow(name, where, summary, partial(make_table, name), own_sets=True)


ROWS = (
    _table("optimizers", "Table 2, Tables 9-13", "ten optimizers under ERM: by data set, and by test domain"),
    _table("iterations", "Table 3, Tables 14-16", "time and accuracy after a third, two thirds and all steps"),
    _table("single-source", "Table 4, Tables 21-24", "train on one domain, test on the others"),
    _table("integration", "Table 5, Tables 17-20", "GENIE and others inside DG algorithms"),
    _table("ablation", "Table 6", "GENIE with preconditioning, noise and mask switched off"),
    _table("sensitivity", "Figure 2", "accuracy against GENIE's p and beta"),
    PaperRow("osgr", "Figure 4", "OSGR over training by optimizer: two forms, with intervals", make_osgr),
    PaperRow("heatmap", "Figures 1, 7", "which parameters move when, by optimizer", make_heatmap),
    PaperRow("landscape", "Figures 5, 6", "three optimizers between minima of single domains", make_landscape),
    PaperRow("umap", "Figure 3", "features before and after training with three optimizers", make_umap),
    PaperRow("claims", "all claims", "every claim: measured how, with which interval, verdict", make_claims),
    PaperRow("summary", "all claims", "how many claims hold by regime, and first answers", make_summary),
    PaperRow("logged", "all tables, Figures 2, 4", "what the logs of the authors' runs say", make_logged),
    PaperRow("coverage", "all of it", "every item of the paper: command, state, verdict", make_coverage),
)

PAPER = {row.name: row for row in ROWS}
"""By name."""
