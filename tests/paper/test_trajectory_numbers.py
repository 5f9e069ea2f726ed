"""Evenness at three granularities, shares of the gap, and class separation: by hand and against others."""

from __future__ import annotations

import pytest
import torch
from sklearn.metrics import silhouette_score

from paper import theory
from paper.trajectory_points import class_separation, evenness, gap_shares

from ..diagnostics.test_updates import brute_gini


def test_granularities_by_hand() -> None:
    """Tensors of 1 and 5 weights: one has a mean of 6, the other of 2; groups of 3 have means 2 and 10/3."""
    values = evenness(torch.tensor([6.0, 0.0, 0.0, 10.0, 0.0, 0.0]), [1, 5], groups=2)
    assert values["tensor"] == pytest.approx(brute_gini([6.0, 2.0]))
    assert values["group"] == pytest.approx(brute_gini([2.0, 10 / 3]))
    assert values["weight"] == pytest.approx(brute_gini([6.0, 0, 0, 10.0, 0, 0]))
    assert evenness(torch.tensor([1.0, 3.0]), [2])["group"] == pytest.approx(
        0.25
    )  # no more groups than weights


def test_the_theorems_preconditioner_shares_the_gap_evenly_and_sgd_does_not() -> None:
    mean, variance, n = torch.tensor([2.0, 1.0, 0.1]), torch.tensor([1.0, 3.0, 2.0]), 8
    even = gap_shares(theory.PRECONDITIONERS["genie"](mean, variance, n), variance)
    torch.testing.assert_close(even, torch.full_like(even, 1 / 3))
    sgd = gap_shares(torch.ones(3), variance)
    w = theory.weights(mean, variance, theory.PRECONDITIONERS["sgd"], n)
    gap = w / (theory.signal_to_noise(mean, variance) + 1 / n) / n  # the terms of 1 - R in the theorem's form
    torch.testing.assert_close(sgd, gap / gap.sum())


@pytest.mark.parametrize("seed", range(4))
def test_separation_is_scikit_learns_silhouette(seed: int) -> None:
    stream = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 5, (60,), generator=stream)
    labels[labels == 4] = 3
    labels[0] = 9  # a class of one sample
    features = torch.randn(60, 7, generator=stream) + 0.5 * labels[:, None]
    expected = silhouette_score(features.numpy(), labels.numpy())
    assert class_separation(features, labels) == pytest.approx(expected, abs=1e-6)
