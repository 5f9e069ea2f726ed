"""MLDG against its gradient formula, with second derivatives taken as finite differences."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from genie_dg._types import DomainBatch, StepContext
from genie_dg.algorithms.mldg import MLDG
from genie_dg.bench.step import take_step

from .networks import Normed, SmallNetwork, batch, cut, mean_loss, same, small_network, steppers

LR, INNER, BETA = 0.2, 0.5, 0.7


def risk(network: SmallNetwork, data: DomainBatch, domains: list[int]) -> Tensor:
    return torch.stack([mean_loss(network(data.images[k]), data.labels[k]) for k in domains]).mean()


def slope(network: SmallNetwork, data: DomainBatch, domains: list[int]) -> list[Tensor]:
    return list(torch.autograd.grad(risk(network, data, domains), list(network.parameters())))


def shifted(network: SmallNetwork, direction: list[Tensor], by: float) -> SmallNetwork:
    """A copy of the network at other weights."""
    copy = small_network()
    for p, q, d in zip(copy.parameters(), network.parameters(), direction, strict=True):
        p.data = q.detach() + by * d
    return copy


def twin_step(
    network: SmallNetwork, data: DomainBatch, context: StepContext, held: int, second_order: bool
) -> None:
    """Steps along F' + beta (G'(w') - a F'' G'(w')) at w' = w - a F', with F'' G' by central differences."""
    order = torch.randperm(len(data), generator=context.generator()).tolist()
    test, train = order[:held], order[held:]
    f = slope(network, data, train)
    g = slope(shifted(network, f, -INNER), data, test)
    h = 1e-4
    plus, minus = (slope(shifted(network, g, sign * h), data, train) for sign in (1, -1))
    for p, a, b, up, down in zip(network.parameters(), f, g, plus, minus, strict=True):
        curvature = (up - down) / (2 * h) if second_order else 0.0
        p.data -= LR * (a + BETA * (b - INNER * curvature))


def run(algorithm: MLDG, data: DomainBatch, steps: int, seed: int = 0) -> None:
    optimizers = steppers(algorithm, LR)
    for t in range(steps):
        take_step(algorithm, optimizers, data, StepContext(t, seed))


@pytest.mark.parametrize("held", [1, 2])
@pytest.mark.parametrize("first_order", [False, True])
def test_four_steps_equal_the_twin(held: int, first_order: bool) -> None:
    algorithm = MLDG(
        small_network(), 3, mldg_beta=BETA, n_meta_test=held, mldg_inner_lr=INNER, mldg_first_order=first_order
    )
    run(algorithm, cut((6, 4, 2)), 4)
    twin = small_network()
    for t in range(4):
        twin_step(twin, cut((6, 4, 2)), StepContext(t), held, second_order=not first_order)
    same(algorithm.network, twin, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_and_graphs_of_gradients(training: bool) -> None:
    algorithm = MLDG(Normed().double(), 3)
    algorithm.train(training)
    optimizers = {"main": torch.optim.SGD(algorithm.network.parameters(), lr=LR)}
    losses = take_step(algorithm, optimizers, batch(), StepContext(0, create_graph=True))
    assert torch.isfinite(losses["main"])
    assert algorithm.network.norm.num_batches_tracked.item() == (3 if training else 0)  # type: ignore[union-attr]
