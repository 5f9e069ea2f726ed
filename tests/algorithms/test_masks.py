"""AND-mask, SAND-mask and GSNR-guided dropout against twins that go entry by entry."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from genie_dg._types import DomainBatch, StepContext
from genie_dg.algorithms.masks import ANDMask, GSNRDropout, SANDMask, sand_mask

from .networks import batch, gradients_of_domains, same, small_network, written

STEP = StepContext(step=0, seed=3)


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
    loss, gradients = written(ANDMask(network, 4, tau=tau), data, STEP)
    losses, _ = gradients_of_domains(network, data)
    assert loss.item() == pytest.approx(sum(losses) / 4, rel=1e-12)
    same(gradients, twin(network, data, and_weight(tau)), atol=1e-14)
    zeros = sum(int((g == 0).sum()) for g in gradients)
    assert zeros > 0  # the mask is not trivial


@pytest.mark.parametrize(("tau", "k"), [(0.4, 1e-3), (0.0, 1e-5), (0.9, 1e-4)])
def test_sand_mask_is_the_twin(tau: float, k: float) -> None:
    network, data = small_network(), batch(domains=4)
    _, gradients = written(SANDMask(network, 4, tau=tau, k=k), data, STEP)
    same(gradients, twin(network, data, sand_weight(tau, k)), rtol=1e-9, atol=1e-14)


def test_equal_gradients_have_the_limit_of_the_sand_mask() -> None:
    equal = torch.tensor([[2.0, -3.0], [2.0, -3.0]])
    assert sand_mask(equal, 0.5, 1e-3).tolist() == [2.0, -3.0]
    assert sand_mask(equal, 1.0, 1e-3).tolist() == [0.0, 0.0]
    tiny = torch.tensor([[1e-30], [2e-30]], requires_grad=True)  # the variance is zero in float32
    result = sand_mask(tiny, 0.5, 10.0)
    torch.testing.assert_close(result, torch.tensor([1.5e-30]), rtol=1e-6, atol=0)
    (slope,) = torch.autograd.grad(result.sum(), tiny)
    torch.testing.assert_close(slope, torch.full((2, 1), 0.5))


def gsnr_twin(network: nn.Module, data: DomainBatch, p: float) -> tuple[float, list[Tensor]]:
    """Mean loss, and the mean gradient with the entries of the highest ratio set to zero."""
    losses, rows = gradients_of_domains(network, data)
    results = []
    for tensors in zip(*rows, strict=True):
        means, ratios = [], []
        for values in zip(*(t.flatten().tolist() for t in tensors), strict=True):
            mean = sum(values) / len(values)
            noise = sum((v - mean) ** 2 for v in values) / len(values)
            means.append(mean)
            ratios.append(mean**2 / noise if noise > 0 else math.inf)
        dropped = sorted(range(len(ratios)), key=lambda j: -ratios[j])[: math.floor(p * len(ratios))]
        kept = [0.0 if j in dropped else mean for j, mean in enumerate(means)]
        results.append(torch.tensor(kept, dtype=torch.float64).view_as(tensors[0]))
    return sum(losses) / len(losses), results


@pytest.mark.parametrize("p", [0.0, 0.1, 1 / 3, 0.9])
@pytest.mark.parametrize("domains", [1, 3])
def test_gsnr_dropout_is_the_twin(domains: int, p: float) -> None:
    """The two halves of its batch stand for domains where there is one."""
    network, data = small_network(), batch(domains)
    parts = data if domains == 3 else DomainBatch(data.images[0].chunk(2), data.labels[0].chunk(2))
    loss, gradients = written(GSNRDropout(network, domains, p=p), data, STEP)
    value, slow = gsnr_twin(network, parts, p)
    assert loss.item() == pytest.approx(value, rel=1e-12)
    same(gradients, slow, atol=1e-15)
    assert [int((g == 0).sum()) for g in gradients] == [math.floor(p * g.numel()) for g in gradients]
