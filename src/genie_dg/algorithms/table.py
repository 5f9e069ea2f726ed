"""The table of algorithms: one row each, open to the user's own."""

from __future__ import annotations

from genie_dg._lookup import Table

from . import erm
from ._base import AlgorithmRow

ALGORITHMS = Table("algorithm", (erm.ROW,), AlgorithmRow, "genie_dg.algorithms")
"""By name, in the order of listings. ``ALGORITHMS.register(AlgorithmRow(...))`` adds one."""
