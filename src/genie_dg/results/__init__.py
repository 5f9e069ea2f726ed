"""What runs have in common: one frame, one selection, tables and comparisons; no torch.

``genie_dg.results.load("runs")`` reads a folder of runs as a polars frame with a row for each run, `records`
opens it into a row for each record.
"""

from __future__ import annotations

from .frame import load, records

__all__ = ["load", "records"]
