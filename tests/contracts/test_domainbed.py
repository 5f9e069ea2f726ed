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
    assert {row.name for row in ALGORITHMS.values() if row.domainbed is None} == ELSEWHERE
    for row in ALGORITHMS.values():
        if row.domainbed is not None:
            assert row.domainbed.tolerance is not None or row.domainbed.differs, row.name
            assert all(sentence.endswith(".") for sentence in row.domainbed.differs), row.name


def test_every_tolerance_has_a_comparison() -> None:
    claimed = {row.name for row in ALGORITHMS.values() if row.domainbed and row.domainbed.tolerance is not None}
    assert claimed == set(COMPARED)


@pytest.mark.parametrize("name", COMPARED)
def test_updates_are_those_of_domainbeds_code(name: str) -> None:
    checkout = os.environ.get("DOMAINBED")
    if not checkout:
        pytest.skip("DOMAINBED names no checkout of github.com/facebookresearch/DomainBed")
    agreement = ALGORITHMS[name].domainbed
    assert agreement is not None
    assert agreement.tolerance is not None
    assert difference(name, load(Path(checkout))) <= agreement.tolerance
