"""Balance at three granularities: by hand, and against brute force."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from genie_dg.diagnostics import MeasurementError, theory
from paper.balance import evenness, gap_shares
from tests.diagnostics.test_updates import brute_gini


def test_granularities_by_hand() -> None:
    """Tensors of 1 and 5 weights: one has a mean of 6, the other of 2; groups of 3 have means 2 and 10/3."""
    found = evenness(torch.tensor([6.0, 0.0, 0.0, 10.0, 0.0, 0.0]), [1, 5], groups=2)
    assert found["tensor"] == pytest.approx(brute_gini([6.0, 2.0]))
    assert found["group"] == pytest.approx(brute_gini([2.0, 10 / 3]))
    assert found["weight"] == pytest.approx(brute_gini([6.0, 0, 0, 10.0, 0, 0]))


def test_groups_are_those_of_the_heatmap() -> None:
    x = torch.rand(1000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    edges = [b * 1000 // 120 for b in range(121)]
    means = [x[a:b].mean().item() for a, b in pairwise(edges)]
    assert evenness(x, [1000])["group"] == pytest.approx(brute_gini(means), abs=1e-12)


def test_fewer_weights_than_groups_are_groups_of_one() -> None:
    found = evenness(torch.tensor([1.0, 3.0]), [2])
    assert (found["group"], found["weight"]) == pytest.approx((0.25, 0.25))


def test_the_theorems_preconditioner_shares_the_gap_evenly_and_sgd_does_not() -> None:
    mean, variance, n = torch.tensor([2.0, 1.0, 0.1]), torch.tensor([1.0, 3.0, 2.0]), 8
    even = gap_shares(theory.PRECONDITIONERS["genie"](mean, variance, n), variance)
    torch.testing.assert_close(even, torch.full_like(even, 1 / 3))
    sgd = gap_shares(torch.ones(3), variance)
    w = theory.weights(mean, variance, theory.PRECONDITIONERS["sgd"], n)
    gap = w / (theory.signal_to_noise(mean, variance) + 1 / n) / n  # the terms of 1 - R in the theorem's form
    torch.testing.assert_close(sgd, gap / gap.sum())
    assert evenness(sgd, [3])["weight"] > 0.2


def test_what_is_refused() -> None:
    with pytest.raises(MeasurementError, match="The sizes add up to 3; got 2 numbers"):
        evenness(torch.ones(2), [3])
    with pytest.raises(MeasurementError, match="got groups=0"):
        evenness(torch.ones(2), [2], groups=0)
    with pytest.raises(MeasurementError, match=r"p has shape \(2,\) and variance \(3,\)"):
        gap_shares(torch.ones(2), torch.ones(3))
    with pytest.raises(MeasurementError, match="so that there is no gap to share"):
        gap_shares(torch.zeros(2), torch.ones(2))
