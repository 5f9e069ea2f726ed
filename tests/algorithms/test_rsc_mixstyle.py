"""RSC and MixStyle against loops over samples, features and channels; Beta samples against their law."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from genie_dg._types import DomainBatch, StepContext
from genie_dg.algorithms.algorithm import Algorithm
from genie_dg.algorithms.mixstyle import MixStyle
from genie_dg.algorithms.rsc import RSC, quantile
from genie_dg.bench.step import take_step

from .networks import SmallNetwork, VectorPoints, batch, descend, mean_loss, same, small_network, steppers

LR = 0.5


def train(algorithm: Algorithm, data: DomainBatch, steps: int) -> None:
    optimizers = steppers(algorithm, LR)
    for t in range(steps):
        take_step(algorithm, optimizers, data, StepContext(t, seed=3))


# --- RSC


def rsc_twin_step(network: SmallNetwork, data: DomainBatch, f: float, b: float) -> int:
    """One step; returns how many features were muted."""
    labels = data.all_labels.tolist()
    z = network.features(data.all_images)
    keep, drops = [], []
    for i, y in enumerate(labels):
        row = z[i].detach().requires_grad_()
        logits = network.head(row)
        (g,) = torch.autograd.grad(logits[y], row)
        limit = float(np.percentile(g.numpy(), 100 * (1 - f)))
        keep.append([0.0 if float(v) >= limit else 1.0 for v in g])
        muted = network.head(row * torch.tensor(keep[i], dtype=torch.float64))
        drops.append((torch.softmax(logits, 0)[y] - torch.softmax(muted, 0)[y]).item())
    limit = float(np.percentile(drops, 100 * (1 - b)))
    mask = [k if drop >= limit else [1.0] * len(k) for k, drop in zip(keep, drops, strict=True)]
    muted = z * torch.tensor(mask, dtype=torch.float64)
    descend(mean_loss(network.head(muted), data.all_labels), list(network.parameters()), LR)
    return sum(row.count(0.0) for row in mask)


@pytest.mark.parametrize(("f", "b", "muted"), [(1 / 3, 1 / 3, 12), (0.45, 0.21, 12), (0.1, 0.5, 9)])
def test_rsc_equals_the_twin(f: float, b: float, muted: int) -> None:
    algorithm, twin = RSC(small_network(), 3, rsc_f_drop_factor=f, rsc_b_drop_factor=b), small_network()
    data = batch()
    train(algorithm, data, 4)
    assert [rsc_twin_step(twin, data, f, b) for _ in range(4)] == [muted] * 4
    same(algorithm.network, twin, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.25, 0.5, 2 / 3, 0.9, 1.0])
@pytest.mark.parametrize("n", [1, 2, 4, 7, 100])
def test_quantiles_are_numpys(fraction: float, n: int) -> None:
    values = torch.randn(3, n, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    want = torch.from_numpy(np.asarray(np.percentile(values.numpy(), 100 * fraction, axis=1)))
    torch.testing.assert_close(quantile(values, fraction), want, rtol=1e-12, atol=1e-12)


def test_a_quantile_on_a_value_is_that_value() -> None:
    """2/3 of the way through 4, 7, 10, ... values lies on one of them, whatever rounding does to 1 - 1/3."""
    for n in range(4, 400, 3):
        values = torch.rand(n, generator=torch.Generator().manual_seed(n))
        assert quantile(values, 1 - 1 / 3) == values.sort().values[2 * (n - 1) // 3]


# --- MixStyle


def mixed(x: Tensor, weight: Tensor, partner: list[int]) -> Tensor:
    samples = []
    for i in range(len(x)):
        channels = []
        for c in range(x.shape[1]):
            (mu, sigma), (other_mu, other_sigma) = (style(x[k, c].detach()) for k in (i, partner[i]))
            w = float(weight[i])
            normal = (x[i, c] - mu) / sigma
            channels.append((w * sigma + (1 - w) * other_sigma) * normal + w * mu + (1 - w) * other_mu)
        samples.append(torch.stack(channels))
    return torch.stack(samples)


def style(values: Tensor) -> tuple[float, float]:
    mu = float(values.sum()) / values.numel()
    return mu, math.sqrt(float(((values - mu) ** 2).sum()) / values.numel() + 1e-6)


def mixstyle_twin_step(network: SmallNetwork, data: DomainBatch, context: StepContext, p: float) -> list[bool]:
    """One step; returns at which points styles were mixed."""
    n, generator, plan = len(data.all_labels), context.generator(), {}
    for point in ("early", "late"):
        coin = float(torch.rand((), generator=generator)) < p
        gammas = torch._standard_gamma(torch.full((2, n), 1.1, dtype=torch.float64), generator)
        uniform = 1 - torch.rand((2, n), generator=generator, dtype=torch.float64)
        x, y = gammas * uniform**10
        plan[point] = coin, x / (x + y), torch.randperm(n, generator=generator).tolist()
    z = data.all_images
    for point, layer in (("early", network.featurizer.early), ("late", network.featurizer.late)):
        z = torch.tanh(layer(z))
        coin, weight, partner = plan[point]
        z = mixed(z, weight, partner) if coin else z
    descend(mean_loss(network.head(z.mean((2, 3))), data.all_labels), list(network.parameters()), LR)
    return [plan[point][0] for point in ("early", "late")]


@pytest.mark.parametrize("p", [0.5, 1.0])
@pytest.mark.parametrize("domains", [1, 3])
def test_mixstyle_equals_the_twin(p: float, domains: int) -> None:
    algorithm, twin, data = (
        MixStyle(small_network(), domains, mixstyle_p=p),
        small_network(),
        batch(domains, size=4),
    )
    train(algorithm, data, 6)
    happened = [mixstyle_twin_step(twin, data, StepContext(t, seed=3), p) for t in range(6)]
    assert len({tuple(h) for h in happened}) >= (3 if p < 1 else 1)
    same(algorithm.network, twin, rtol=1e-9, atol=1e-11)


def test_mixstyle_takes_the_first_three_points_or_those_it_is_given() -> None:
    network = small_network()
    network.points = ("stem", "a", "b", "c", "d")
    assert MixStyle(network, 2).points == ("a", "b", "c")
    assert MixStyle(network, 2, mixstyle_points=["b", "d"]).points == ("b", "d")
    with pytest.raises(ValueError, match=r"^got mixstyle_points='z'; expected stem, a, b, c or d\.$"):
        MixStyle(network, 2, mixstyle_points=["z"])
    network.points = ()
    with pytest.raises(ValueError, match=r"^MixStyle got a network without feature points; .*\.$"):
        MixStyle(network, 2)


def test_mixstyle_refuses_vectors() -> None:
    algorithm = MixStyle(VectorPoints().double(), 2, mixstyle_p=1.0)
    (objective,) = algorithm.objectives(batch(2), StepContext(0))
    with pytest.raises(
        ValueError, match=r"^MixStyle got .* \(12, 6\) at the point 'early'; expected a map .*\.$"
    ):
        objective.loss()
