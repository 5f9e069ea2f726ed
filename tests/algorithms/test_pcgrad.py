"""PCGrad, Agr-Sum and Agr-Rand against twins in flat lists of floats, projection by projection."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from genie_dg._types import DomainBatch, StepContext
from genie_dg.algorithms.pcgrad import PCGrad, _agreed, agreeing, projection_weights
from genie_dg.bench.step import take_step

from .networks import batch, gradients_of_domains, same, small_network, steppers

LR = 0.3


def opposed(domains: int = 4) -> DomainBatch:
    """Domains whose labels contradict one another on much the same images, so that gradients conflict."""
    data = batch(domains, size=5)
    images = tuple(data.images[0] + 0.3 * x for x in data.images)
    return DomainBatch(images, tuple((data.labels[0] + k) % 3 for k in range(domains)))


def flat_gradients(network: nn.Module, data: DomainBatch) -> list[list[float]]:
    _, rows = gradients_of_domains(network, data)
    return [torch.cat([g.flatten() for g in row]).tolist() for row in rows]


def dot(a: Sequence[float], b: Sequence[float]) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def pcgrad_twin(rows: list[list[float]], orders: Sequence[Sequence[int]]) -> list[float]:
    projected = []
    for i, order in enumerate(orders):
        g = list(rows[i])
        for j in order:
            if j != i and dot(g, rows[j]) < 0:
                by = dot(g, rows[j]) / dot(rows[j], rows[j])
                g = [x - by * y for x, y in zip(g, rows[j], strict=True)]
        projected.append(g)
    return [math.fsum(column) / len(rows) for column in zip(*projected, strict=True)]


def agreement_twin(rows: list[list[float]], noise: Sequence[float] | None) -> list[float]:
    result: list[float | None] = []
    for column in zip(*rows, strict=True):
        same = all(x > 0 for x in column) or all(x < 0 for x in column) or all(x == 0 for x in column)
        result.append(sum(column) / len(column) if same else None)
    agreed = [abs(x) for x in result if x is not None]
    scale = sum(agreed) / len(agreed) if agreed else 0.0
    noise = [0.0] * len(result) if noise is None else noise
    return [scale * xi if x is None else x for x, xi in zip(result, noise, strict=True)]


def twin(surgery: str, network: nn.Module, data: DomainBatch, context: StepContext) -> list[float]:
    rows, generator = flat_gradients(network, data), context.generator()
    orders = [torch.randperm(len(data), generator=generator).tolist() for _ in range(len(data))]
    if surgery == "pcgrad":
        return pcgrad_twin(rows, orders)
    if surgery == "agr-sum":
        return agreement_twin(rows, None)
    noise = [torch.randn(p.shape, generator=generator) for p in network.parameters()]
    return agreement_twin(rows, [x for xi in noise for x in xi.double().flatten().tolist()])


EACH = pytest.mark.parametrize("surgery", ["pcgrad", "agr-sum", "agr-rand"])


@EACH
@pytest.mark.parametrize("domains", [2, 4])
def test_five_steps_are_those_of_the_twin(surgery: str, domains: int) -> None:
    algorithm, slow, data = PCGrad(small_network(), domains, surgery=surgery), small_network(), opposed(domains)
    optimizers = steppers(algorithm, LR)
    for t in range(5):
        context = StepContext(t, seed=3)
        rows = flat_gradients(slow, data)
        assert any(dot(a, b) < 0 for a in rows for b in rows)  # there is something to operate on
        value = sum(cross_entropy(slow(x), y).item() for x, y in zip(data.images, data.labels, strict=True))
        gradient = torch.tensor(twin(surgery, slow, data, context), dtype=torch.float64)
        plain = torch.tensor(rows, dtype=torch.float64).mean(0)
        assert (gradient - plain).abs().max() > 1e-3
        moved = parameters_to_vector(slow.parameters()).detach() - LR * gradient
        vector_to_parameters(moved, slow.parameters())
        losses = take_step(algorithm, optimizers, data, context)
        assert losses["main"] == pytest.approx(value / domains, rel=1e-12)
        same(algorithm.network, slow)


def test_weights_from_inner_products_are_projections() -> None:
    draw = random.Random(0)
    for _ in range(50):
        rows = [[draw.gauss(0, 1) for _ in range(3)] for _ in range(5)]
        orders = [draw.sample(range(5), 5) for _ in range(5)]
        g = torch.tensor(rows, dtype=torch.float64)
        ours = projection_weights(g @ g.T, orders) @ g
        assert ours.tolist() == pytest.approx(pcgrad_twin(rows, orders), rel=1e-9, abs=1e-12)


def test_opposite_and_zero_gradients_give_numbers() -> None:
    g = torch.tensor([[1.0, 2.0], [-1.0, -2.0], [0.0, 0.0]])
    weights = projection_weights(g @ g.T, [[0, 1, 2]] * 3)
    assert weights.isfinite().all()
    assert (weights @ g).tolist() == [0.0, 0.0]
    assert agreeing(g).tolist() == [0.0, 0.0]


def test_noise_goes_where_signs_differ_alone() -> None:
    ones = [torch.ones(3)]
    (some,) = _agreed([torch.tensor([[0.0, 1.0, 1.0], [0.0, 3.0, -1.0]])], ones)
    assert some.tolist() == [0.0, 2.0, 1.0]  # the mean size over those that agree is (0 + 2) / 2
    (none,) = _agreed([torch.tensor([[1.0, 1.0, 2.0], [-1.0, -1.0, 0.0]])], ones)
    assert none.tolist() == [0.0, 0.0, 0.0]
