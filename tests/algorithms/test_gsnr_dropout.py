"""GSNR-guided dropout against a twin that ranks entry by entry."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from genie_dg._types import DomainBatch, StepContext
from genie_dg.algorithms.masks import GSNRDropout

from .networks import batch, small_network

STEP = StepContext(step=0)


def written(
    algorithm: GSNRDropout, data: DomainBatch, context: StepContext = STEP
) -> tuple[Tensor, list[Tensor]]:
    loss = next(iter(algorithm.objectives(data, context))).loss()
    parameters = list(algorithm.network.parameters())
    return loss, list(torch.autograd.grad(loss, parameters, create_graph=context.create_graph))


def twin(network: nn.Module, parts: list[tuple[Tensor, Tensor]], p: float) -> tuple[float, list[Tensor]]:
    """Mean loss, and the mean gradient with the entries of the highest ratio set to zero."""
    losses, rows = [], []
    for images, labels in parts:
        loss = cross_entropy(network(images), labels)
        losses.append(loss.item())
        rows.append([g.flatten().tolist() for g in torch.autograd.grad(loss, list(network.parameters()))])
    results = []
    for k, parameter in enumerate(network.parameters()):
        means, ratios = [], []
        for j in range(parameter.numel()):
            values = [row[k][j] for row in rows]
            mean = sum(values) / len(values)
            noise = sum((v - mean) ** 2 for v in values) / len(values)
            means.append(mean)
            ratios.append(mean**2 / noise if noise > 0 else math.inf)
        dropped = sorted(range(len(ratios)), key=lambda j: -ratios[j])[: math.floor(p * len(ratios))]
        kept = [0.0 if j in dropped else mean for j, mean in enumerate(means)]
        results.append(torch.tensor(kept, dtype=torch.float64).view_as(parameter))
    return sum(losses) / len(losses), results


@pytest.mark.parametrize("p", [0.0, 0.1, 1 / 3, 0.9])
def test_it_is_the_twin(p: float) -> None:
    network, data = small_network(), batch(domains=3)
    loss, gradients = written(GSNRDropout(network, 3, p=p), data)
    value, slow = twin(network, list(zip(data.images, data.labels, strict=True)), p)
    assert loss.item() == pytest.approx(value, rel=1e-12)
    for a, b in zip(gradients, slow, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-15)
        assert int((a == 0).sum()) == math.floor(p * a.numel())


def test_one_source_uses_the_halves_of_its_batch() -> None:
    network, data = small_network(), batch(domains=1, size=6)
    loss, gradients = written(GSNRDropout(network, 1), data)
    images, labels = data.images[0], data.labels[0]
    value, slow = twin(network, [(images[:3], labels[:3]), (images[3:], labels[3:])], 1 / 3)
    assert loss.item() == pytest.approx(value, rel=1e-12)
    for a, b in zip(gradients, slow, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-15)


def test_a_single_sample_is_erm() -> None:
    network, data = small_network(), batch(domains=1, size=1)
    _, gradients = written(GSNRDropout(network, 1, p=0.5), data)
    erm = cross_entropy(network(data.images[0]), data.labels[0])
    for a, b in zip(gradients, torch.autograd.grad(erm, list(network.parameters())), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_zero_and_equal_gradients_give_numbers(dtype: torch.dtype) -> None:
    network, data = small_network(dtype=dtype), batch(domains=2, dtype=dtype)
    flat = DomainBatch(tuple(x * 0 for x in data.images), (data.labels[0], data.labels[0]))
    loss, gradients = written(GSNRDropout(network, 2, p=0.5), flat)
    assert loss.isfinite()
    assert all(g.isfinite().all() for g in gradients)
    assert (
        int((gradients[-2] == 0).sum()) == gradients[-2].numel() // 2
    )  # equal gradients: infinite, and ranked
