"""Class separation against scikit-learn's silhouette, and by hand."""

from __future__ import annotations

import pytest
import torch
from sklearn.metrics import silhouette_score

from genie_dg.diagnostics import MeasurementError
from paper.separation import class_separation


@pytest.mark.parametrize("seed", range(4))
def test_it_is_scikit_learns_silhouette(seed: int) -> None:
    stream = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 5, (60,), generator=stream)
    labels[labels == 4] = 3
    labels[0] = 9  # a class of one sample
    features = torch.randn(60, 7, generator=stream) + 0.5 * labels[:, None]
    assert class_separation(features, labels) == pytest.approx(
        silhouette_score(features.numpy(), labels.numpy()), abs=1e-6
    )


def test_the_extremes() -> None:
    labels = torch.tensor([0, 0, 1, 1])
    assert class_separation(torch.tensor([[0.0], [0.0], [1.0], [1.0]]), labels) == 1.0
    assert class_separation(torch.zeros(4, 2), labels) == 0.0
    assert class_separation(torch.tensor([[0.0], [1.0], [0.0], [1.0]]), labels) == pytest.approx(-0.5)


def test_what_is_refused() -> None:
    with pytest.raises(MeasurementError, match="Got 3 rows of features and 3 labels of 1 classes"):
        class_separation(torch.zeros(3, 2), torch.zeros(3))
    with pytest.raises(MeasurementError, match="expected as many finite rows"):
        class_separation(torch.full((3, 2), torch.nan), torch.arange(3))
