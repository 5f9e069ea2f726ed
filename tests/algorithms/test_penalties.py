"""IRM, VREx, GroupDRO, Mixup, CORAL, MMD and CausIRL against slow float64 twins: values and gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations, permutations
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from genie_dg._types import MAIN, DomainBatch, Network, StepContext
from genie_dg.algorithms import alignment, groupdro, mixup
from genie_dg.algorithms._mixing import beta
from genie_dg.algorithms.algorithm import Algorithm
from genie_dg.algorithms.alignment import kernel_distance, mean_over_pairs, moment_distance
from genie_dg.algorithms.risk_penalties import IRM, VREx
from genie_dg.bench.step import take_step

from .networks import SmallNetwork, batch, cut, descend, mean_loss, same, small_network

SIZES = [(6, 6, 6), (5, 2, 6), (6, 3), (4,)]
Twin = Callable[[Network, DomainBatch], Tensor]


def domain_losses(network: Network, data: DomainBatch) -> list[Tensor]:
    return [mean_loss(network(x), y) for x, y in zip(data.images, data.labels, strict=True)]


def check(algorithm: Algorithm, data: DomainBatch, twin: Twin, step: int = 0) -> None:
    """The loss and the gradient of every parameter equal the twin's."""
    parameters = list(algorithm.network.parameters())
    objectives = list(algorithm.objectives(data, StepContext(step)))
    assert [o.role for o in objectives] == [MAIN]
    loss, expected = objectives[0].loss(), twin(algorithm.network, data)
    torch.testing.assert_close(loss, expected, rtol=1e-11, atol=1e-12)
    ours, theirs = torch.autograd.grad(loss, parameters), torch.autograd.grad(expected, parameters)
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11)


def irm_twin(weight: float) -> Twin:
    """The derivatives in w come from autograd, on the samples 0, 2, 4, ... and 1, 3, 5, ..."""

    def loss(network: Network, data: DomainBatch) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for x, y in zip(data.images, data.labels, strict=True):
            logits, derivatives = network(x), []
            for half in ([i for i in range(len(y)) if i % 2 == r] for r in (0, 1)):
                w = torch.ones((), dtype=torch.float64, requires_grad=True)
                part = mean_loss(w * logits[half], y[half])
                derivatives.append(torch.autograd.grad(part, w, create_graph=True)[0])
            total = total + mean_loss(logits, y) + weight * derivatives[0] * derivatives[1]
        return total / len(data)

    return loss


def vrex_twin(weight: float) -> Twin:
    def loss(network: Network, data: DomainBatch) -> Tensor:
        losses = domain_losses(network, data)
        mean = sum(losses, torch.zeros(())) / len(losses)
        variance = sum(((r - mean) ** 2 for r in losses), torch.zeros(())) / len(losses)
        return mean + weight * variance

    return loss


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize(("step", "weight"), [(0, 1.0), (6, 1.0), (7, 30.0)])
def test_irm_on_both_sides_of_the_change_of_weight(sizes: tuple[int, ...], step: int, weight: float) -> None:
    algorithm = IRM(small_network(), len(sizes), irm_lambda=30.0, irm_penalty_anneal_iters=7)
    check(algorithm, cut(sizes), irm_twin(weight), step)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize(("step", "weight"), [(0, 1.0), (6, 1.0), (7, 3000.0)])
def test_vrex_on_both_sides_of_the_change_of_weight(sizes: tuple[int, ...], step: int, weight: float) -> None:
    algorithm = VREx(small_network(), len(sizes), vrex_lambda=3000.0, vrex_penalty_anneal_iters=7)
    check(algorithm, cut(sizes), vrex_twin(weight), step)


def moment_twin(x: Tensor, y: Tensor) -> Tensor:
    """Entry by entry."""
    d = x.shape[1]
    means, covariances = [], []
    for z in (x, y):
        mu = [sum(z[i, a] for i in range(len(z))) / len(z) for a in range(d)]
        means.append(mu)
        products = [[[(r[a] - mu[a]) * (r[b] - mu[b]) for r in z] for b in range(d)] for a in range(d)]
        covariances.append([[sum(p) / (len(z) - 1) for p in row] for row in products])
    first = sum((means[0][a] - means[1][a]) ** 2 for a in range(d)) / d
    entries = [(a, b) for a in range(d) for b in range(d)]
    return first + sum((covariances[0][a][b] - covariances[1][a][b]) ** 2 for a, b in entries) / d**2


def kernel_twin(x: Tensor, y: Tensor) -> Tensor:
    """Pair by pair."""

    def mean_kernel(p: Tensor, q: Tensor) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for gamma in (0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0):
            total = total + sum(torch.exp(-gamma * ((a - b) ** 2).sum()) for a in p for b in q)
        return total / (len(p) * len(q))

    return mean_kernel(x, x) + mean_kernel(y, y) - 2 * mean_kernel(x, y)


def aligned_twin(gamma: float, distance: Callable[[Tensor, Tensor], Tensor]) -> Twin:
    def loss(network: Network, data: DomainBatch) -> Tensor:
        features = [network.features(x) for x in data.images]
        pairs = [distance(a, b) for a, b in combinations(features, 2)]
        penalty = sum(pairs) / len(pairs) if pairs else 0.0
        losses = domain_losses(network, data)
        return sum(losses, torch.zeros(())) / len(losses) + gamma * penalty

    return loss


@pytest.mark.parametrize("sizes", SIZES)
def test_coral_and_mmd(sizes: tuple[int, ...]) -> None:
    for kind, gamma, distance in ((alignment.CORAL, 7.0, moment_twin), (alignment.MMD, 0.7, kernel_twin)):
        check(kind(small_network(), len(sizes), mmd_gamma=gamma), cut(sizes), aligned_twin(gamma, distance))


def features(seed: int, n: int, d: int, scale: float) -> Tensor:
    return scale * torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


sizes = st.integers(2, 6)
seeds = st.integers(0, 2**31)
scales = st.sampled_from([0.01, 1.0, 20.0])


@settings(max_examples=40, deadline=None)
@given(seed=seeds, n=sizes, m=sizes, d=st.integers(1, 4), scale=scales)
def test_distances_have_the_properties_of_distances(seed: int, n: int, m: int, d: int, scale: float) -> None:
    x, y = features(seed, n, d, scale), features(seed + 1, m, d, 1.0)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    for distance in (moment_distance, kernel_distance):
        value = distance(x, y)
        assert value >= -1e-12
        torch.testing.assert_close(distance(y, x), value)
        torch.testing.assert_close(distance(x[order], y), value)
        torch.testing.assert_close(distance(x + 3.0, y + 3.0), value, rtol=1e-7, atol=1e-9)
        assert abs(distance(x, x.clone())) < 1e-9
    torch.testing.assert_close(kernel_distance(x, y), kernel_twin(x, y), rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(moment_distance(x, y), moment_twin(x, y), rtol=1e-9, atol=1e-12)


def test_mmd_in_float32_keeps_its_narrow_kernels() -> None:
    """Long features far from 0, where |x|^2 + |x|^2 - 2 x.x is not 0 after rounding."""
    x, y = features(0, 8, 512, 1.0) + 5.0, features(1, 8, 512, 1.0) + 5.5
    torch.testing.assert_close(
        kernel_distance(x.float(), y.float()).double(), kernel_twin(x, y), rtol=1e-4, atol=0
    )


def test_distances_are_not_computed_in_half_precision() -> None:
    x, y = features(0, 8, 12, 1.0).bfloat16(), features(1, 8, 12, 1.0).bfloat16()
    for distance, twin in ((kernel_distance, kernel_twin), (moment_distance, moment_twin)):
        with torch.autocast("cpu", torch.bfloat16):
            value = mean_over_pairs([x, y], distance)
        torch.testing.assert_close(value.double(), twin(x.double(), y.double()), rtol=1e-5, atol=0)


def groupdro_twin(weights: list[float]) -> Twin:
    def loss(network: Network, data: DomainBatch) -> Tensor:
        losses = domain_losses(network, data)
        return sum((q * r for q, r in zip(weights, losses, strict=True)), torch.zeros(()))

    return loss


def new_weights(old: list[float], losses: list[float], eta: float) -> list[float]:
    raw = [
        q * torch.tensor(eta * r, dtype=torch.float64).exp().item() for q, r in zip(old, losses, strict=True)
    ]
    return [q / sum(raw) for q in raw]


def test_groupdro_follows_its_twin_for_steps() -> None:
    algorithm, copy = groupdro.GroupDRO(small_network(), 3, groupdro_eta=2.0), small_network()
    assert algorithm.q.tolist() == [1 / 3] * 3
    optimizer = torch.optim.SGD(algorithm.roles()[MAIN].parameters, lr=0.5)
    weights = [1 / 3] * 3
    for step in range(4):
        data = batch(seed=step)
        take_step(algorithm, {MAIN: optimizer}, data, StepContext(step))
        losses = domain_losses(copy, data)
        weights = new_weights(weights, [r.item() for r in losses], 2.0)
        loss = groupdro_twin(weights)(copy, data)
        descend(loss, list(copy.parameters()), 0.5)
        torch.testing.assert_close(algorithm.q.tolist(), weights, rtol=1e-10, atol=0)
    torch.testing.assert_close(list(algorithm.network.parameters()), list(copy.parameters()))


LAMBDAS = (0.3, 0.85, 0.1)


def mixup_twin(order: tuple[int, ...]) -> Twin:
    def loss(network: Network, data: DomainBatch) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for place, i in enumerate(order):
            j, lam = order[(place + 1) % len(order)], LAMBDAS[place]
            n = min(data.sizes[i], data.sizes[j])
            logits = network(
                torch.stack([lam * data.images[i][s] + (1 - lam) * data.images[j][s] for s in range(n)])
            )
            first, second = mean_loss(logits, data.labels[i][:n]), mean_loss(logits, data.labels[j][:n])
            total = total + lam * first + (1 - lam) * second
        return total / len(order)

    return loss


@pytest.mark.parametrize("sizes", [(6, 6, 6), (5, 2, 6), (6, 3)])
def test_mixup_is_one_of_the_rings_and_every_ring_comes(
    sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        mixup, "beta", lambda alpha, shape, generator: torch.tensor(LAMBDAS[: shape[0]], dtype=torch.float64)
    )
    algorithm, data = mixup.Mixup(small_network(), len(sizes)), cut(sizes)
    twins = {order: mixup_twin(order) for order in permutations(range(len(sizes)))}
    values = {order: twin(algorithm.network, data).item() for order, twin in twins.items()}
    seen = set()
    for step in range(24):
        (objective,) = algorithm.objectives(data, StepContext(step))
        loss = objective.loss().item()
        (order,) = [order for order, value in values.items() if abs(value - loss) < 1e-12]
        seen.add(order)
        if step < 2:
            check(algorithm, data, twins[order], step)
    assert seen == set(twins)


def test_mixup_of_one_domain_mixes_it_with_a_shuffled_copy() -> None:
    images = torch.arange(8.0, dtype=torch.float64).reshape(8, 1, 1, 1)
    labels = torch.arange(8)
    generator = StepContext(0).generator()
    ((mixed, first, second, lam),) = mixup.mixed_pairs(DomainBatch((images,), (labels,)), 1.0, generator)
    assert first.tolist() == list(range(8))
    assert sorted(second.tolist()) == list(range(8))
    assert second.tolist() != list(range(8))
    torch.testing.assert_close(mixed.flatten(), lam * first.double() + (1 - lam) * second.double())


@pytest.mark.parametrize("alpha", [0.1, 0.2, 0.5, 1.0, 3.0, 10.0])
def test_weights_of_mixup_have_the_beta_distribution(alpha: float) -> None:
    draws = beta(alpha, (4000,), torch.Generator().manual_seed(5))
    assert stats.kstest(draws, stats.beta(alpha, alpha).cdf).pvalue > 0.01
    assert stats.kstest(draws, stats.beta(1.5 * alpha, 1.5 * alpha).cdf).pvalue < 0.01


LR, GAMMA = 0.3, 0.7
CAUSIRL = pytest.mark.parametrize("kind", [alignment.CausIRLCORAL, alignment.CausIRLMMD])


def mixtures_twin(network: SmallNetwork, data: DomainBatch, context: StepContext, kind: Any) -> Tensor:
    generator = context.generator()
    first: list[Tensor] = []
    second: list[Tensor] = []
    loss = torch.zeros(())
    for images, labels in zip(data.images, data.labels, strict=True):
        place = int(torch.randint(len(labels), (), generator=generator))
        z = network.features(images)
        loss = loss + mean_loss(network.head(z), labels) / len(data)
        first, second = [*first, *z[:place]], [*second, *z[place:]]
    if len(first) < 2 or len(second) < 2:
        return loss
    distance = moment_twin if kind is alignment.CausIRLCORAL else kernel_twin
    return loss + GAMMA * distance(torch.stack(first), torch.stack(second))


@CAUSIRL
@pytest.mark.parametrize("domains", [1, 3])
def test_causirl_equals_its_two_mixtures(kind: Any, domains: int) -> None:
    algorithm, network = kind(small_network(), domains, mmd_gamma=GAMMA), small_network()
    data = cut((5, 3, 4)) if domains == 3 else batch(1, size=5)
    optimizer, penalised = torch.optim.SGD(algorithm.parameters(), lr=LR), 0
    for t in range(6):
        context = StepContext(t, seed=3)
        cuts = alignment.random_cuts(data.sizes, context.generator())
        penalised += 2 <= sum(cuts) <= sum(data.sizes) - 2
        take_step(algorithm, {"main": optimizer}, data, context)
        descend(mixtures_twin(network, data, context, kind), list(network.parameters()), LR)
        same(algorithm, network)
    assert penalised > 2


@CAUSIRL
def test_a_mixture_of_one_sample_has_no_penalty(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    data, plain = batch(2, size=2), []
    for cuts in ([0, 0], [1, 0], [1, 1], [0, 1]):
        monkeypatch.setattr(alignment, "random_cuts", lambda sizes, generator, cuts=cuts: cuts)
        losses = []
        for gamma in (0.0, 1.0):
            (objective,) = kind(small_network(), 2, mmd_gamma=gamma).objectives(data, StepContext(0))
            losses.append(objective.loss().item())
        assert all(math.isfinite(loss) for loss in losses)
        plain.append(losses[0] == losses[1])
    assert plain == [True, True, False, True]
