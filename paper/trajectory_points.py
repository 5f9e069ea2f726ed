"""What is measured at one step of a training run, all rules at the run's present weights.

Weights without a gradient so far are left out of what depends on a rule's preconditioner: Adam would divide by
its epsilon there.

What is measured at the end of a training run: accuracy, sharpness, class separation, the PAC-Bayes bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from genie_dg.bench.assemble import Parts
from genie_dg.diagnostics.measured import measure_osgr
from genie_dg.diagnostics.preconditioners import preconditioner
from genie_dg.diagnostics.sharpness import loss_rise
from genie_dg.diagnostics.updates import gini

from .figure_setup import cross_entropy
from .pac_bayes import kl_divergence, risk_bound
from .request import PaperError
from .rules import (
    RULES,
    Gains,
    GradientHistory,
    Pool,
    SampleMoments,
    draw_gradients,
    flatten,
    sample_moments,
    step_gains,
)
from .theory import COMPONENTS, PRECONDITIONERS

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


GROUPS = 120
"""Groups of the heatmap of Figure 1."""

GRANULARITIES = ("weight", "tensor", "group")


def evenness(values: Tensor, sizes: Sequence[int], groups: int = GROUPS) -> dict[str, float]:
    """The Gini coefficient of non-negative numbers by weight, by tensor and by group: 0 when all are alike.

    Of a tensor, or of a group of consecutive weights as in the paper's Figure 1, the mean counts.

    Args:
        values: one number for each weight, tensor after tensor.
        sizes: the sizes of the tensors.
        groups: how many groups; group b starts at weight ``b n // groups``.

    Example:
        >>> evenness(torch.tensor([0.0, 4.0, 2.0, 2.0]), [2, 2], groups=2)
        {'weight': 0.375, 'tensor': 0.0, 'group': 0.0}
    """
    n = values.numel()
    groups = min(groups, n)
    edges = [b * n // groups for b in range(groups + 1)]
    by_group = [edges[b + 1] - edges[b] for b in range(groups)]
    return {
        "weight": gini(values),
        "tensor": gini(_means(values, sizes)),
        "group": gini(_means(values, by_group)),
    }


def _means(values: Tensor, sizes: Sequence[int]) -> Tensor:
    return torch.stack([part.double().mean() for part in torch.split(values.flatten(), list(sizes))])


def gap_shares(p: Tensor, variance: Tensor) -> Tensor:
    r"""Each weight's share :math:`p_j \rho_j^2 / \sum_i p_i \rho_i^2` of the gap 1 - R.

    This is balance in the paper's own sense: eq. 5, :math:`p = 1/\rho^2`, makes the shares uniform.

    >>> gap_shares(torch.tensor([1.0, 1.0]), torch.tensor([3.0, 1.0]))
    tensor([0.7500, 0.2500], dtype=torch.float64)
    """
    share = p.double() * variance.double()
    return share / share.sum()


@dataclass
class PointNumbers:
    """What is measured at one step of a run: plain numbers, and pairs of gains that are summed over steps."""

    numbers: dict[str, float] = field(default_factory=dict)
    gains: dict[str, Gains] = field(default_factory=dict)


def balance_of_moves(name: str, moved: Tensor, sizes: Sequence[int]) -> dict[str, float]:
    """Gini coefficients of |weight change| at the three granularities; NaN where nothing moved."""
    if not moved.any():
        return dict.fromkeys((f"moves/{name}/{unit}" for unit in GRANULARITIES), math.nan)
    return {f"moves/{name}/{unit}": value for unit, value in evenness(moved.abs(), sizes).items()}


def measure_point(
    model: nn.Module, optimizer: Optimizer, history: GradientHistory, pool: Pool, n: int, kind: str
) -> PointNumbers:
    """Everything at one step; neither model nor optimizer is changed.

    - ``theorem/RULE``: the OSGR in the theorem's form with the rule's preconditioner;
    - ``step/RULE``: to first order, of the rule's real next step, momentum included;
    - ``gap/UNIT/RULE``: Gini coefficient of the shares of the gap, RULE ``own`` being the run's own optimizer;
    - ``measured/NAME/PART``: the theorem's form with Table 1's preconditioners and their parts, from measured
      moments, and ``measured/eq. 5`` in closed form;
    - ``definition``: gains of the run's own optimizer by real loss changes.
    """
    point = PointNumbers()
    moments = sample_moments(model, pool)
    on_d, on_other = draw_gradients(model, pool, n)
    variance, seen = moments.whole.variance, history.seen
    for rule in RULES:
        p = history.preconditioner(rule) * seen
        point.numbers[f"theorem/{rule}"] = moments.gains(p, n).ratio
        point.gains[f"step/{rule}"] = step_gains(history, rule, on_d, on_other)
        point.numbers |= _gap(rule, p, variance, history.sizes)
    mask = torch.rand(len(variance), generator=torch.Generator().manual_seed(history.steps)) >= 0.4
    masked = history.preconditioner("released") * seen * mask
    point.numbers |= _gap("released, one mask", masked, variance, history.sizes)
    own = torch.ones_like(variance)
    if kind != "sam":  # SAM around SGD steps along a gradient as it is
        own = flatten(list(preconditioner(optimizer, model).values()))
    point.numbers |= _gap("own", own * seen, variance, history.sizes)
    point.numbers["seen"] = float(seen.double().mean())
    point.numbers |= from_moments(moments, n)
    osgr = measure_osgr(model, optimizer, cross_entropy, pool, n)
    point.gains["definition"] = Gains(osgr.gain_on_other, osgr.gain_on_d)
    point.numbers["sharpness"] = sharpness_of(model, pool)
    return point


def _gap(name: str, p: Tensor, variance: Tensor, sizes: Sequence[int]) -> dict[str, float]:
    shares = evenness(gap_shares(p, variance), sizes)
    return {f"gap/{unit}/{name}": value for unit, value in shares.items()}


def from_moments(moments: SampleMoments, n: float) -> dict[str, float]:
    """Table 1's preconditioners and their parts at the measured moments, and the conditions of the proofs.

    - ``correlation``: of GSNR and variance, whose sign decides R_GENIE >= R_SGD;
    - ``weights/NAME``: Gini coefficient of the W_j, 0 where the first assumption holds;
    - ``dominance``: log10 of (1 - W_max) r_max / (|J| r'_max), above 0 where the second condition holds; NaN
      without two positive GSNRs.
    """
    formulas = {
        f"{name}/{part}": formula
        for name, parts in COMPONENTS.items()
        for part, formula in parts._asdict().items()
        if part == "product" or name in ("adam", "genie")  # the others have a part that is 1
    }
    numbers = {f"measured/{key}": moments.gains_of(formula, n).ratio for key, formula in formulas.items()}
    numbers["measured/eq. 5"] = moments.theorem_gains(n).ratio
    numbers["correlation"] = moments.gsnr_variance_correlation()
    live, whole = moments.live, moments.whole
    second = (whole.mean.square() - whole.variance / whole.count).clamp(min=0) + whole.variance / n
    for name in ("sgd", "adam"):
        share = PRECONDITIONERS[name](whole.mean, whole.variance, n) * second
        numbers[f"weights/{name}"] = gini(share)
    (r, runner_up), places = whole.gsnr[live].topk(2)
    w = float(second[live][places[0]] / second[live].sum())
    ratio = (1 - w) * float(r) / (int(live.sum()) * float(runner_up)) if runner_up > 0 else math.nan
    numbers["dominance"] = math.log10(ratio) if ratio > 0 else math.nan
    return numbers
