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
from genie_dg.algorithms.masks import AND_ROW, SAND_ROW, ANDMask, SANDMask, and_mask, sand_mask

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


@pytest.mark.parametrize("algorithm", [ANDMask, SANDMask])
def test_one_source_is_erm(algorithm: type[Algorithm]) -> None:
    network, data = small_network(), batch(domains=1)
    data = DomainBatch((data.images[0] * 0,), data.labels)  # the first layer's gradient is exactly zero
    loss, gradients = written(algorithm(network, 1), data)
    erm = cross_entropy(network(data.images[0]), data.labels[0])
    plain = torch.autograd.grad(erm, list(network.parameters()))
    assert loss.item() == erm.item()
    for a, b in zip(gradients, plain, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("tau", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("create_graph", [False, True])
def test_zero_and_equal_gradients_give_numbers(dtype: torch.dtype, tau: float, create_graph: bool) -> None:
    network, data = small_network(dtype=dtype), batch(domains=2, dtype=dtype)
    flat = DomainBatch(tuple(x * 0 for x in data.images), (data.labels[0], data.labels[0]))
    context = StepContext(0, create_graph=create_graph)
    for algorithm in (ANDMask(network, 2, tau=tau), SANDMask(network, 2, tau=tau, k=1e5)):
        _, gradients = written(algorithm, flat, context)
        assert all(g.isfinite().all() for g in gradients)
        if create_graph:
            total = sum((g.square().sum() for g in gradients), torch.zeros((), dtype=dtype))
            second = torch.autograd.grad(total, list(network.parameters()))
            assert all(s.isfinite().all() for s in second)


def test_equal_gradients_have_the_limit_of_the_sand_mask() -> None:
    equal = torch.tensor([[2.0, -3.0], [2.0, -3.0]])
    assert sand_mask(equal, 0.5, 1e-3).tolist() == [2.0, -3.0]
    assert sand_mask(equal, 1.0, 1e-3).tolist() == [0.0, 0.0]
    tiny = torch.tensor([[1e-30], [2e-30]], requires_grad=True)  # the variance is zero in float32
    result = sand_mask(tiny, 0.5, 10.0)
    torch.testing.assert_close(result, torch.tensor([1.5e-30]), rtol=1e-6, atol=0)
    (slope,) = torch.autograd.grad(result.sum(), tiny)
    torch.testing.assert_close(slope, torch.full((2, 1), 0.5))


def test_loss_is_computed_anew_from_the_current_weights() -> None:
    network, data = small_network(), batch()
    objective = next(iter(ANDMask(network, 3, tau=0.6).objectives(data, STEP)))
    before = torch.autograd.grad(objective.loss(), list(network.parameters()))
    with torch.no_grad():
        for p in network.parameters():
            p.mul_(1.3)
    after = torch.autograd.grad(objective.loss(), list(network.parameters()))
    for a, slow, b in zip(after, twin(network, data, and_weight(0.6)), before, strict=True):
        torch.testing.assert_close(a, slow, rtol=1e-10, atol=1e-14)
        assert not torch.equal(a, b)


@pytest.mark.parametrize(
    "make", [lambda n: ANDMask(n, 3, tau=0.6), lambda n: SANDMask(n, 3, tau=0.2, k=1e-4)], ids=["and", "sand"]
)
def test_the_gradient_carries_its_derivative(make: Any) -> None:
    """The Jacobian of the prescribed field between two vectors: autograd against central differences."""
    network, data = small_network(), batch()
    algorithm, parameters = make(network), list(network.parameters())
    g = torch.Generator().manual_seed(0)
    z = [torch.randn(p.shape, generator=g, dtype=p.dtype) for p in parameters]
    v = [torch.randn(p.shape, generator=g, dtype=p.dtype) for p in parameters]

    def dot(a: Sequence[Tensor], b: Sequence[Tensor]) -> Tensor:
        return torch.stack([(x * y).sum() for x, y in zip(a, b, strict=True)]).sum()

    _, field = written(algorithm, data, StepContext(0, create_graph=True))
    exact = dot(torch.autograd.grad(dot(field, z), parameters), v).item()
    sides = []
    for h in (1e-6, -1e-6):
        with torch.no_grad():
            torch._foreach_add_(parameters, v, alpha=h)
        sides.append(dot(written(algorithm, data)[1], z).item())
        with torch.no_grad():
            torch._foreach_add_(parameters, v, alpha=-h)
    assert exact == pytest.approx((sides[0] - sides[1]) / 2e-6, rel=1e-5)
    assert abs(exact) > 1e-3


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


@pytest.mark.parametrize("tau", [-0.1, 1.1, math.nan])
@pytest.mark.parametrize("algorithm", [ANDMask, SANDMask])
def test_bad_tau_is_refused(algorithm: Any, tau: float) -> None:
    with pytest.raises(ValueError, match=r"^got tau=.*; expected a number of at least 0 and at most 1\.$"):
        algorithm(small_network(), 3, tau=tau)


@pytest.mark.parametrize("k", [0.0, -1.0, math.inf, math.nan])
def test_bad_k_is_refused(k: float) -> None:
    with pytest.raises(ValueError, match=r"^got k=.*; expected a number above 0\.$"):
        SANDMask(small_network(), 3, tau=0.5, k=k)


def test_rows() -> None:
    for row in (AND_ROW, SAND_ROW):
        built = row.build(small_network(), 3, **{name: s.default for name, s in row.space.items()})
        assert {name: getattr(built, name) for name in row.space} == {
            n: s.default for n, s in row.space.items()
        }
    assert and_mask(torch.tensor([[1.0], [-1.0]]), 1.0).tolist() == [0.0]
