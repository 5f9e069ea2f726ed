r"""How clearly classes are separated in a network's features, as one number.

For sample i with :math:`a_i` the mean distance to the other samples of its class and :math:`b_i` the mean
distance to the samples of the nearest other class, the silhouette is :math:`(b_i - a_i) / \max(a_i, b_i)`: near
1 where classes are far apart, 0 where they touch, negative where a sample lies in another class. The mean over
samples of several domains says whether classes are separated *across* domains.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ._functional import MeasurementError


def class_separation(features: Tensor, labels: Tensor) -> float:
    """The mean silhouette of features by class, with Euclidean distances; a class of one sample counts as 0.

    Args:
        features: one row for each sample.
        labels: the class of each.

    Example:
        >>> class_separation(torch.tensor([[0.0], [1.0], [10.0], [11.0]]), torch.tensor([0, 0, 1, 1]))
        0.8997...

    References: P. J. Rousseeuw, Silhouettes, J. Comput. Appl. Math. 20, 1987.
    """
    x = features.detach().flatten(1).double()
    classes = torch.unique(labels)
    if len(x) != len(labels) or len(classes) < 2 or not x.isfinite().all():
        raise MeasurementError(
            f"Got {len(x)} rows of features and {len(labels)} labels of {len(classes)} classes; expected as "
            "many finite rows as labels, and two classes or more."
        )
    distances = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")
    member = (labels[:, None] == classes[None, :]).double()
    counts, own = member.sum(0), member.bool()
    sums = distances @ member
    others = (counts * member).sum(1) - 1  # in its own class, without itself
    a = (sums * member).sum(1) / others.clamp(min=1)
    b = (sums / counts).masked_fill(own, torch.inf).min(1).values
    silhouette = (b - a) / torch.maximum(a, b).clamp(min=torch.finfo(torch.float64).tiny)
    return float(torch.where(others > 0, silhouette, 0.0).mean())
