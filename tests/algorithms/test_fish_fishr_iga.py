"""Fish, Fishr and IGA against twins with a loop for every domain, sample and entry."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from genie_dg._types import DomainBatch, StepContext
from genie_dg.algorithms.algorithm import Algorithm
from genie_dg.algorithms.fish import Fish
from genie_dg.algorithms.fishr import Fishr
from genie_dg.algorithms.iga import IGA

from .networks import SmallNetwork, batch, descend, same, small_network, written


def sgd_step(algorithm: Algorithm, data: DomainBatch, context: StepContext, rate: float) -> float:
    """One step of plain SGD on every objective; the loss before it."""
    optimizer, value = torch.optim.SGD(algorithm.network.parameters(), lr=rate), math.nan
    for objective in algorithm.objectives(data, context):
        optimizer.zero_grad()
        loss = objective.loss()
        loss.backward()
        optimizer.step()
        value = loss.item()
    return value


def domain_loss(network: nn.Module, data: DomainBatch, d: int) -> Tensor:
    return cross_entropy(network(data.images[d]), data.labels[d])


# Fish


@pytest.mark.parametrize(("meta_lr", "rate"), [(0.5, 0.2), (0.05, 0.7)])
def test_sgd_at_the_inner_rate_makes_the_step_of_the_paper(meta_lr: float, rate: float) -> None:
    network, slow, data = small_network(), small_network(), batch(domains=4)
    algorithm = Fish(network, 4, meta_lr=meta_lr, fish_inner_lr=rate)
    for step in range(3):
        context = StepContext(step, seed=5)
        value = sgd_step(algorithm, data, context, rate)
        inner, losses = copy.deepcopy(slow), []
        for d in torch.randperm(4, generator=context.generator()).tolist():
            loss = domain_loss(inner, data, d)
            losses.append(loss.item())
            descend(loss, list(inner.parameters()), rate)
        with torch.no_grad():
            for p, q in zip(slow.parameters(), inner.parameters(), strict=True):
                p += meta_lr * (q - p)
        assert value == pytest.approx(sum(losses) / 4, rel=1e-10)
        same(network, slow)


def test_fish_leaves_the_weights_alone_and_keeps_small_rates_exact() -> None:
    network, data = small_network(dtype=torch.float32), batch(dtype=torch.float32)
    before = copy.deepcopy(network)
    _, gradients = written(Fish(network, 3, meta_lr=1.0, fish_inner_lr=1e-9), data, StepContext(0))
    same(network, before, rtol=0)
    total = sum((domain_loss(network, data, d) for d in range(3)), torch.zeros(()))
    for a, b in zip(gradients, torch.autograd.grad(total, list(network.parameters())), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


# Fishr


def variance_twin(losses: Sequence[Tensor], layer: nn.Linear) -> list[Tensor]:
    """Sample by sample with autograd; a list over the entries of the layer, each with its graph."""
    rows = []
    for loss in losses:
        slopes = torch.autograd.grad(
            loss, [p for p in (layer.weight, layer.bias) if p is not None], create_graph=True
        )
        rows.append(torch.cat([g.flatten() for g in slopes]))
    entries = []
    for j in range(len(rows[0])):
        mean = sum((row[j] for row in rows), torch.zeros((), dtype=torch.float64)) / len(rows)
        spread = sum(((row[j] - mean) ** 2 for row in rows), torch.zeros((), dtype=torch.float64))
        entries.append(spread / len(rows))
    return entries


def fishr_twin(
    layer: nn.Linear, data: DomainBatch, inputs: Sequence[Tensor], past: list[list[float]] | None, ema: float
) -> tuple[Tensor, Tensor, list[list[float]]]:
    """Mean loss, penalty and the new averages, from what goes into the last layer for each domain."""
    every, scaled, averages = [], [], []
    for d, h in enumerate(inputs):
        losses = [cross_entropy(layer(h[i : i + 1]), data.labels[d][i : i + 1]) for i in range(len(h))]
        every += losses
        now = variance_twin(losses, layer)
        old = past[d] if past else [0.0] * len(now)
        average = [ema * o + (1 - ema) * n for o, n in zip(old, now, strict=True)]
        scaled.append([a / (1 - ema) for a in average])
        averages.append([a.item() for a in average])
    penalty = torch.zeros((), dtype=torch.float64)
    for column in zip(*scaled, strict=True):
        mean = sum(column, torch.zeros((), dtype=torch.float64)) / len(column)
        for u in column:
            penalty = penalty + (u - mean) ** 2 / len(column) / len(scaled[0])
    return torch.stack(every).mean(), penalty, averages


def with_head(head: nn.Module) -> SmallNetwork:
    network = small_network()
    network.head = head.double()  # type: ignore[assignment]
    return network


def test_fishr_is_the_twin_over_several_steps() -> None:
    network, slow = small_network(), small_network()
    algorithm = Fishr(network, 3, lambda_=40.0, penalty_anneal_iters=2, ema=0.7)
    past: list[list[float]] | None = None
    for step in range(5):
        data = batch(size=4, seed=step)
        value = sgd_step(algorithm, data, StepContext(step), 0.3)
        inputs = [slow.features(images) for images in data.images]
        mean, penalty, past = fishr_twin(slow.head, data, inputs, past, 0.7)
        loss = mean + (40.0 if step >= 2 else 0.0) * penalty
        assert value == pytest.approx(loss.item(), rel=1e-9)
        descend(loss, list(slow.parameters()), 0.3)
        same(network, slow, rtol=1e-8)
        torch.testing.assert_close(
            algorithm.variances, torch.tensor(past, dtype=torch.float64), rtol=1e-8, atol=1e-15
        )


@pytest.mark.parametrize("bias", [True, False])
def test_fishr_uses_the_features_that_dropout_left(bias: bool) -> None:
    torch.manual_seed(1)
    layer = nn.Linear(6, 3, bias=bias)
    network, data = with_head(nn.Sequential(nn.Dropout(0.5), layer)), batch(size=4)
    torch.manual_seed(7)
    loss, gradients = written(Fishr(network, 3, lambda_=30.0, penalty_anneal_iters=0), data, StepContext(0))
    torch.manual_seed(7)
    dropped = nn.functional.dropout(network.features(data.all_images), 0.5)
    mean, penalty, _ = fishr_twin(layer, data, dropped.split(4), None, 0.95)
    slow = mean + 30.0 * penalty
    assert loss.item() == pytest.approx(slow.item(), rel=1e-10)
    for a, b in zip(gradients, torch.autograd.grad(slow, list(network.parameters())), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-13)


def test_fishr_keeps_its_precision_in_mixed_precision() -> None:
    """Nearly equal samples: squared mean and mean square differ in digits that bfloat16 does not have."""
    network, data = small_network(dtype=torch.float32), batch(dtype=torch.float32)
    near = tuple(x[:1] + 0.01 * x for x in data.images)
    data = DomainBatch(near, tuple(torch.zeros_like(y) for y in data.labels))
    results = []
    for mixed in (False, True):
        algorithm = Fishr(network, 3, penalty_anneal_iters=0)
        for objective in algorithm.objectives(data, StepContext(0)):
            with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
                objective.loss()
        results.append(algorithm.variances)
    assert results[1].dtype == torch.float32
    assert (results[1] - results[0]).norm() < results[0].norm()  # thousands of times that in bfloat16


def test_fishr_refuses_heads_that_it_cannot_see_through() -> None:
    with pytest.raises(
        ValueError, match=r"^Fishr got the head .* last layer is an nn\.Linear with 3 outputs\.$"
    ):
        Fishr(with_head(nn.Conv1d(1, 1, 1)), 3)
    scaled = Fishr(with_head(nn.Sequential(nn.Linear(6, 3), nn.Tanh())), 3)
    with pytest.raises(ValueError, match="ends there"):
        written(scaled, batch(), StepContext(0))


# IGA


def iga_twin(network: nn.Module, data: DomainBatch, penalty: float) -> Tensor:
    """Entry by entry."""
    losses = [domain_loss(network, data, d) for d in range(len(data))]
    rows = []
    for loss in losses:
        slopes = torch.autograd.grad(loss, list(network.parameters()), create_graph=True)
        rows.append(torch.cat([g.flatten() for g in slopes]))
    value = torch.stack(losses).mean()
    for column in zip(*rows, strict=True):
        mean = sum(column) / len(column)
        value = value + penalty * sum((g - mean) ** 2 for g in column) / len(column)
    return value


def test_iga_is_the_twin() -> None:
    network, data = small_network(), batch(domains=4)
    loss, gradients = written(IGA(network, 4, penalty=20.0), data, StepContext(0))
    slow = iga_twin(network, data, 20.0)
    assert loss.item() == pytest.approx(slow.item(), rel=1e-11)
    same(gradients, torch.autograd.grad(slow, list(network.parameters())), rtol=1e-9, atol=1e-11)
