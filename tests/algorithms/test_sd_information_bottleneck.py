"""SD, IB-ERM and IB-IRM against slow float64 twins: losses, gradients and whole updates."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from genie_dg._types import MAIN, DomainBatch, Network, StepContext
from genie_dg.algorithms import information_bottleneck as ib
from genie_dg.algorithms import sd
from genie_dg.algorithms.algorithm import Algorithm
from genie_dg.bench.step import take_step

from .networks import Adam, batch, cut, mean_loss, same, small_network
from .test_penalties import SIZES, check, domain_losses, irm_twin

Twin = Callable[[Network, DomainBatch], Tensor]


def sd_twin(weight: float) -> Twin:
    """Sample by sample, logit by logit."""

    def loss(network: Network, data: DomainBatch) -> Tensor:
        logits, labels = network(torch.cat(data.images)), torch.cat(data.labels)
        squares = [z**2 for row in logits for z in row]
        return mean_loss(logits, labels) + weight * sum(squares, torch.zeros(())) / len(squares)

    return loss


def variance_twin(network: Network, data: DomainBatch) -> Tensor:
    """Domain by domain, feature by feature."""
    total = torch.zeros((), dtype=torch.float64)
    for x in data.images:
        columns = network.features(x).T
        for column in columns:
            mean = sum(column, torch.zeros(())) / len(column)
            variance = sum(((z - mean) ** 2 for z in column), torch.zeros(())) / (len(column) - 1)
            total = total + variance / len(columns)
    return total / len(data)


def ib_erm_twin(weight: float) -> Twin:
    def loss(network: Network, data: DomainBatch) -> Tensor:
        losses = domain_losses(network, data)
        return sum(losses, torch.zeros(())) / len(losses) + weight * variance_twin(network, data)

    return loss


def ib_irm_twin(irm: float, weight: float) -> Twin:
    return lambda network, data: irm_twin(irm)(network, data) + weight * variance_twin(network, data)


def follow(algorithm: Algorithm, twin: Callable[[int], Twin], starts: dict[int, float | None]) -> None:
    """Adam by hand, with its fresh starts (a new learning rate, or None for the old one), gives the weights."""
    copy = small_network()
    optimizer = torch.optim.Adam(algorithm.roles()[MAIN].parameters, lr=0.01, eps=1e-3)
    adam = Adam(list(copy.parameters()), 0.01, eps=1e-3)
    for step in range(6):
        data = batch(seed=step)
        take_step(algorithm, {MAIN: optimizer}, data, StepContext(step))
        if step in starts:
            adam = Adam(list(copy.parameters()), starts[step] or adam.lr, eps=1e-3)
        adam.step(twin(step)(copy, data))
        same(algorithm.network, copy)


@pytest.mark.parametrize("sizes", [*SIZES, (6, 1)])
def test_sd(sizes: tuple[int, ...]) -> None:
    check(sd.SD(small_network(), len(sizes), sd_reg=0.7), cut(sizes), sd_twin(0.7))
    check(sd.SD(small_network(), len(sizes), sd_reg=0.0), cut(sizes), sd_twin(0.0))


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize(("step", "weight"), [(6, 0.0), (7, 30.0)])
def test_ib_erm_on_both_sides_of_the_change_of_weight(sizes: tuple[int, ...], step: int, weight: float) -> None:
    algorithm = ib.IBERM(small_network(), len(sizes), ib_lambda=30.0, ib_penalty_anneal_iters=7)
    check(algorithm, cut(sizes), ib_erm_twin(weight), step)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize(
    ("step", "irm", "weight"), [(3, 1.0, 0.0), (4, 1.0, 30.0), (6, 1.0, 30.0), (7, 20.0, 30.0)]
)
def test_ib_irm_on_both_sides_of_both_changes_of_weight(
    sizes: tuple[int, ...], step: int, irm: float, weight: float
) -> None:
    settings = {"irm_lambda": 20.0, "irm_penalty_anneal_iters": 7}
    algorithm = ib.IBIRM(small_network(), len(sizes), **settings, ib_lambda=30.0, ib_penalty_anneal_iters=4)
    check(algorithm, cut(sizes), ib_irm_twin(irm, weight), step)


def test_whole_updates() -> None:
    follow(sd.SD(small_network(), 3, sd_reg=0.7), lambda step: sd_twin(0.7), {})
    follow(
        ib.IBERM(small_network(), 3, ib_lambda=5.0, ib_penalty_anneal_iters=3),
        lambda step: ib_erm_twin(5.0 if step >= 3 else 0.0),
        {3: None},
    )
    settings = {"irm_lambda": 9.0, "irm_penalty_anneal_iters": 2}
    follow(
        ib.IBIRM(small_network(), 3, **settings, ib_lambda=5.0, ib_penalty_anneal_iters=4),
        lambda step: ib_irm_twin(9.0 if step >= 2 else 1.0, 5.0 if step >= 4 else 0.0),
        {2: None, 4: None},
    )


def test_the_variance_is_not_computed_in_half_precision() -> None:
    z = torch.tensor([[100.0], [101.0], [103.0]]).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        assert ib.feature_variance(z, [3]).item() == z.float().var().item() > 0


def test_the_squares_are_not_computed_in_half_precision() -> None:
    algorithm = sd.SD(small_network(dtype=torch.float32), 2, sd_reg=1.0)
    data = batch(2, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        logits = algorithm.network(data.all_images)
        (loss,) = [objective.loss() for objective in algorithm.objectives(data, StepContext(0))]
    assert logits.dtype == torch.bfloat16
    expected = mean_loss(logits.double(), data.all_labels) + logits.double().square().mean()
    torch.testing.assert_close(loss.double(), expected, rtol=1e-6, atol=0)
