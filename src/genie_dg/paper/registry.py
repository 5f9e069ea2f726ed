"""The table of the paper's tables and figures, open to the user's own."""

from __future__ import annotations

from genie_dg.registry import Registry

from ._base import PaperRow
from .claims_ledger import CLAIMS_ROW
from .figures import ROWS as FIGURES
from .tables import ROWS as TABLES

PAPER = Registry("part of the paper", (*TABLES, *FIGURES, CLAIMS_ROW), PaperRow, "genie_dg.paper")
"""By name, in the order of the paper."""
