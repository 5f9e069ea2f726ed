"""What the rows say of DomainBed: complete, and true where a checkout of it is at hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from genie_dg.algorithms.registry import ALGORITHMS

from ..oracle.domainbed import COMPARED, difference, load

ELSEWHERE = {"MixStyle", "MIRO", "PCGrad", "GSNRDropout"}
"""Algorithms that DomainBed does not have."""


def test_every_row_says_how_it_compares() -> None:
    rows = ALGORITHMS.values()
    assert {row.name for row in rows if row.domainbed is None and not row.differs} == ELSEWHERE
    assert all(row.differs.endswith(".") for row in rows if row.differs)
    assert {row.name for row in rows if row.domainbed is not None} == set(COMPARED)


@pytest.mark.parametrize("name", COMPARED)
def test_updates_are_those_of_domainbeds_code(name: str) -> None:
    checkout = os.environ.get("DOMAINBED")
    if not checkout:
        pytest.skip("DOMAINBED names no checkout of github.com/facebookresearch/DomainBed")
    tolerance = ALGORITHMS[name].domainbed
    assert tolerance is not None
    assert difference(name, load(Path(checkout))) <= tolerance
