"""Evenness at three granularities, shares of the gap, and class separation: by hand and against others."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from sklearn.metrics import silhouette_score

from paper import theory
from paper.request import PaperError
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


def test_groups_are_those_of_the_heatmap() -> None:
    x = torch.rand(1000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    means = [x[a:b].mean().item() for a, b in pairwise(b * 1000 // 120 for b in range(121))]
    assert evenness(x, [1000])["group"] == pytest.approx(brute_gini(means), abs=1e-12)


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


def test_the_extremes_of_separation() -> None:
    labels = torch.tensor([0, 0, 1, 1])
    assert class_separation(torch.tensor([[0.0], [0.0], [1.0], [1.0]]), labels) == 1.0
    assert class_separation(torch.zeros(4, 2), labels) == 0.0
    assert class_separation(torch.tensor([[0.0], [1.0], [0.0], [1.0]]), labels) == pytest.approx(-0.5)
    with pytest.raises(PaperError, match="Got 3 rows of features and 3 labels of 1 classes"):
        class_separation(torch.zeros(3, 2), torch.zeros(3))
