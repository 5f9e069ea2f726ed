"""What is measured at one step of a training run, all rules at the run's present weights.

Weights without a gradient so far are left out of what depends on a rule's preconditioner: Adam would divide by
its epsilon there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from genie_dg.diagnostics.measured import measure_osgr
from genie_dg.diagnostics.preconditioners import preconditioner
from genie_dg.diagnostics.updates import gini

from .figure_setup import cross_entropy
from .rules import RULES, GradientHistory, flatten
from .same_weights import Gains, Pool, SampleMoments, draw_gradients, sample_moments, step_gains
from .theory import COMPONENTS, PRECONDITIONERS
from .trajectory_ends import sharpness_of

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
