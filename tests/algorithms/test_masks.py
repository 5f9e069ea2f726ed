"""AND-mask and SAND-mask against twins that go entry by entry."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from genie_dg._types import DomainBatch, StepContext
from genie_dg.algorithms.algorithm import Algorithm
from genie_dg.algorithms.masks import ANDMask, SANDMask, sand_mask

from .networks import batch, small_network

STEP = StepContext(step=0, seed=3)


def written(
    algorithm: Algorithm, data: DomainBatch, context: StepContext = STEP
) -> tuple[Tensor, list[Tensor]]:
    """The loss and what it writes to the parameters."""
    loss = next(iter(algorithm.objectives(data, context))).loss()
    parameters = list(algorithm.network.parameters())
    return loss, list(torch.autograd.grad(loss, parameters, create_graph=context.create_graph))


def gradients_of_domains(network: nn.Module, data: DomainBatch) -> tuple[list[float], list[list[Tensor]]]:
    """Losses, and for each domain the gradients of all parameters."""
    losses, rows = [], []
    for images, labels in zip(data.images, data.labels, strict=True):
        loss = cross_entropy(network(images), labels)
        losses.append(loss.item())
        rows.append(list(torch.autograd.grad(loss, list(network.parameters()))))
    return losses, rows


def masked_twin(columns: Sequence[Sequence[float]], weight: Any) -> list[float]:
    """Entry by entry: weight(values) times the mean, over the mean weight of the tensor."""
    weights = [weight(values) for values in columns]
    scale = 1e-10 + sum(weights) / len(weights)
    return [w * sum(values) / len(values) / scale for w, values in zip(weights, columns, strict=True)]


def sign_agreement(values: Sequence[float]) -> float:
    return abs(sum((v > 0) - (v < 0) for v in values) / len(values))


def and_weight(tau: float) -> Any:
    return lambda values: 1.0 if sign_agreement(values) >= tau - 1e-12 else 0.0


def sand_weight(tau: float, k: float) -> Any:
    def weight(values: Sequence[float]) -> float:
        mean = sum(values) / len(values)
        variance = sum((v - mean) ** 2 for v in values) / (len(values) - 1)
        return max(0.0, math.tanh(k / variance * (sign_agreement(values) - tau)))

    return weight


def twin(network: nn.Module, data: DomainBatch, weight: Any) -> list[Tensor]:
    _, rows = gradients_of_domains(network, data)
    results = []
    for tensors in zip(*rows, strict=True):
        columns = list(zip(*(t.flatten().tolist() for t in tensors), strict=True))
        results.append(torch.tensor(masked_twin(columns, weight), dtype=torch.float64).view_as(tensors[0]))
    return results


@pytest.mark.parametrize("tau", [0.2, 0.5, 1.0])
def test_and_mask_is_the_twin(tau: float) -> None:
    network, data = small_network(), batch(domains=4)
    loss, gradients = written(ANDMask(network, 4, tau=tau), data)
    losses, _ = gradients_of_domains(network, data)
    assert loss.item() == pytest.approx(sum(losses) / 4, rel=1e-12)
    for ours, slow in zip(gradients, twin(network, data, and_weight(tau)), strict=True):
        torch.testing.assert_close(ours, slow, rtol=1e-10, atol=1e-14)
    zeros = sum(int((g == 0).sum()) for g in gradients)
    assert zeros > 0  # the mask is not trivial


@pytest.mark.parametrize(("tau", "k"), [(0.4, 1e-3), (0.0, 1e-5), (0.9, 1e-4)])
def test_sand_mask_is_the_twin(tau: float, k: float) -> None:
    network, data = small_network(), batch(domains=4)
    _, gradients = written(SANDMask(network, 4, tau=tau, k=k), data)
    for ours, slow in zip(gradients, twin(network, data, sand_weight(tau, k)), strict=True):
        torch.testing.assert_close(ours, slow, rtol=1e-9, atol=1e-14)


def test_a_steep_sand_mask_is_the_and_mask() -> None:
    network, data = small_network(), batch(domains=4)
    _, steep = written(SANDMask(network, 4, tau=0.4, k=1e5), data)
    _, hard = written(ANDMask(network, 4, tau=0.4), data)
    for a, b in zip(steep, hard, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=0)


def test_the_published_tau_of_sand_mask_lets_nothing_through() -> None:
    _, gradients = written(SANDMask(small_network(), 3, tau=1.0), batch())
    assert all((g == 0).all() for g in gradients)
    _, gradients = written(SANDMask(small_network(), 3), batch())
    assert all((g != 0).any() for g in gradients)


def test_equal_gradients_have_the_limit_of_the_sand_mask() -> None:
    equal = torch.tensor([[2.0, -3.0], [2.0, -3.0]])
    assert sand_mask(equal, 0.5, 1e-3).tolist() == [2.0, -3.0]
    assert sand_mask(equal, 1.0, 1e-3).tolist() == [0.0, 0.0]
    tiny = torch.tensor([[1e-30], [2e-30]], requires_grad=True)  # the variance is zero in float32
    result = sand_mask(tiny, 0.5, 10.0)
    torch.testing.assert_close(result, torch.tensor([1.5e-30]), rtol=1e-6, atol=0)
    (slope,) = torch.autograd.grad(result.sum(), tiny)
    torch.testing.assert_close(slope, torch.full((2, 1), 0.5))


def test_unused_and_frozen_parameters() -> None:
    network, data = small_network(), batch()
    network.head.bias.requires_grad_(False)
    network.spare = nn.Parameter(torch.ones(2, dtype=torch.float64))
    loss = next(iter(ANDMask(network, 3).objectives(data, STEP))).loss()
    loss.backward()
    assert network.head.bias.grad is None
    assert network.spare.grad is not None
    assert network.spare.grad.tolist() == [0.0, 0.0]
    assert network.head.weight.grad is not None
