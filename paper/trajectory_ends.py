"""What is measured at the end of a training run: accuracy, sharpness, class separation, the PAC-Bayes bound."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

import torch
from torch import Tensor, nn

from genie_dg.bench.assemble import Parts
from genie_dg.diagnostics.sharpness import loss_rise

from .figure_setup import cross_entropy
from .pac_bayes import kl_divergence, risk_bound
from .request import PaperError
from .rules import flatten
from .same_weights import Pool, sample_moments
from .theory import PRECONDITIONERS

RADIUS = 0.05
"""Of the ball in which sharpness is measured: SAM's default."""


def pieces(pool: Pool, size: int) -> Iterator[Pool]:
    """A pool in parts of at most ``size`` samples."""
    yield from zip(torch.split(pool[0], size), torch.split(pool[1], size), strict=True)


def weights_of(model: nn.Module) -> Tensor:
    """All trainable weights as one vector, a copy."""
    return flatten([p for p in model.parameters() if p.requires_grad])


def sharpness_of(model: nn.Module, pool: Pool) -> float:
    """The largest rise of the loss that a short ascent meets within `RADIUS`."""
    return loss_rise(model, cross_entropy, pool, RADIUS, direction="ascent", steps=5).value


def end_numbers(parts: Parts, pool: Pool, unseen: Pool) -> dict[str, float]:
    """At the last step: accuracy on the unseen domain in points, sharpness, class separation, risk bounds."""
    network = parts.algorithm.network
    training = network.training
    network.eval()
    with torch.no_grad():
        correct = [int((network(x).argmax(1) == y).sum()) for x, y in pieces(unseen, 64)]
        features = torch.cat([network.features(x) for some in (pool, unseen) for x, _ in pieces(some, 64)])
    network.train(training)
    numbers = {
        "accuracy": 100 * sum(correct) / len(unseen[1]),
        "end/sharpness": sharpness_of(network, pool),
        "separation": class_separation(features, torch.cat([pool[1], unseen[1]])),
    }
    return numbers | risk_bounds(network, pool)


def risk_bounds(model: nn.Module, pool: Pool, draws: int = 5) -> dict[str, float]:
    """The paper's bound on the error rate after one step from the present weights, as it is printed.

    Posterior N(theta - q g, q^2 rho^2) and prior N(theta, rho^2) with g and rho^2 of the gradients over the
    pool, once with q the variance adaptation factor and once with q = 1. A weight without variance stays where
    it is.
    """
    whole = sample_moments(model, pool).whole
    theta = weights_of(model).double()
    live = whole.variance > 0
    factors = {
        "adapted": PRECONDITIONERS["svag"](whole.mean, whole.variance, len(pool[1])),
        "plain": torch.ones_like(theta),
    }
    numbers = {}
    for name, q in factors.items():
        after = torch.where(live, theta - q * whole.mean, theta)
        divergence = kl_divergence(after[live], theta[live], q[live].clamp(min=1e-12), whole.variance[live])
        spread = torch.where(live, q * whole.variance.sqrt(), 0.0)
        stream = torch.Generator().manual_seed(0)
        noise = [torch.randn(len(theta), generator=stream, dtype=torch.float64) for _ in range(draws)]
        error = fmean(_error_at(model, after + spread * xi, pool) for xi in noise)
        numbers[f"risk/{name}"] = risk_bound(error, float(divergence), len(pool[1]))
    return numbers


@torch.no_grad()
def _error_at(model: nn.Module, weights: Tensor, pool: Pool) -> float:
    """The error rate with other weights."""
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    parts = torch.split(weights, [p.numel() for p in named.values()])
    values = {
        name: piece.reshape(p.shape).to(p.dtype) for (name, p), piece in zip(named.items(), parts, strict=True)
    }
    was = model.training
    model.eval()
    wrong = [
        int((torch.func.functional_call(model, values, (x,)).argmax(1) != y).sum()) for x, y in pieces(pool, 64)
    ]
    model.train(was)
    return sum(wrong) / len(pool[1])


def class_separation(features: Tensor, labels: Tensor) -> float:
    r"""How clearly classes are separated: the mean silhouette, with Euclidean distances.

    For sample i with :math:`a_i` the mean distance to the other samples of its class and :math:`b_i` the mean
    distance to those of the nearest other class, it is :math:`(b_i - a_i) / \max(a_i, b_i)`: near 1 where
    classes are far apart, 0 where they touch; 0 for the only sample of a class. The mean over samples of
    several domains says whether classes are separated *across* domains.

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
        raise PaperError(
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
