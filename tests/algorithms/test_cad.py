"""CAD and CondCAD against sums over pairs of samples."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from genie_dg._types import DomainBatch, StepContext
from genie_dg.algorithms.cad import CAD_ROW, COND_CAD_ROW, bottleneck_loss
from genie_dg.bench.step import take_step

from .networks import descend, labelled, same, small_network

LR = 0.2
ROWS = pytest.mark.parametrize("row", [CAD_ROW, COND_CAD_ROW], ids=lambda row: row.name)


def penalty(z: Tensor, y: list[int], d: list[int], t: float, conditional: bool, flipped: bool) -> Tensor:
    """The guess of the domain, sample by sample."""
    n, terms = len(y), []
    for i in range(n):
        others = [j for j in range(n) if j != i and (y[j] == y[i] or not conditional)]
        wanted = [j for j in others if (d[j] != d[i]) == flipped]
        if not wanted or y.count(y[i]) == 1:
            continue
        weights = {j: torch.exp((z[i] * z[j]).sum() / t) for j in others}
        p = sum(weights[j] for j in wanted) / sum(weights.values())
        terms.append(t / 0.07 * (-torch.log(p) if flipped else torch.log(p)))
    return sum(terms, torch.zeros(())) / max(len(terms), 1)


def uneven() -> DomainBatch:
    """Class 3 occurs once, class 1 in one domain only, class 2 never."""
    return labelled([0, 3, 0, 1, 1], [0, 0, 0], [0, 0, 0, 0])


@ROWS
@pytest.mark.parametrize("is_flipped", [True, False])
@pytest.mark.parametrize("more", [{}, {"is_normalized": True}, {"is_project": True}], ids=str)
def test_steps_equal_the_twin(row: Any, is_flipped: bool, more: dict[str, bool]) -> None:
    algorithm = row.build(
        small_network(classes=4), 3, lmbda=0.6, temperature=0.4, is_flipped=is_flipped, **more
    )
    network, data, conditional = small_network(classes=4), uneven(), row is COND_CAD_ROW
    extra = [p.detach().clone().requires_grad_() for p in algorithm.projection.parameters()]
    assert len(extra) == (4 if "is_project" in more else 0)
    assert len(algorithm.roles()["main"].parameters) == len(list(network.parameters())) + len(extra)
    optimizer = torch.optim.SGD(algorithm.roles()["main"].parameters, lr=LR)
    y, d = data.all_labels.tolist(), data.domain_labels.tolist()
    for t in range(3):
        take_step(algorithm, {"main": optimizer}, data, StepContext(t))
        features = network.features(data.all_images)
        logits, z = network.head(features), features
        if extra:
            z = torch.relu(z @ extra[0].T + extra[1]) @ extra[2].T + extra[3]
        if "is_normalized" in more:
            z = torch.stack([row / torch.sqrt((row * row).sum()) for row in z])
        loss = sum(-torch.log_softmax(logits[i], 0)[y[i]] for i in range(len(y))) / len(y)
        loss = loss + 0.6 * penalty(z, y, d, 0.4, conditional, is_flipped)
        parameters = [*network.parameters(), *extra]
        descend(loss, parameters, LR)
        same(algorithm, parameters)


@pytest.mark.parametrize("conditional", [False, True])
@pytest.mark.parametrize("flipped", [False, True])
def test_large_scores_do_not_overflow(conditional: bool, flipped: bool) -> None:
    z = torch.tensor([[40.0, 0.0], [40.0, 1.0], [39.0, 2.0], [38.0, -1.0]], requires_grad=True)
    loss = bottleneck_loss(z, torch.zeros(4), torch.tensor([0, 0, 1, 1]), 0.05, conditional, flipped)
    (gradient,) = torch.autograd.grad(loss, z)
    assert torch.isfinite(loss)
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("conditional", [False, True])
def test_samples_without_a_partner_are_left_out(conditional: bool) -> None:
    z = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    nobody = bottleneck_loss(z, torch.arange(4), torch.tensor([0, 0, 1, 1]), 0.1, conditional, True)
    assert nobody.item() == 0
    assert torch.equal(torch.autograd.grad(nobody, z)[0], torch.zeros_like(z))
    labels, domains = torch.tensor([0, 0, 0, 1]), torch.tensor([0, 0, 1, 1])
    some = bottleneck_loss(z, labels, domains, 0.1, conditional, True)
    torch.testing.assert_close(
        some, penalty(z, labels.tolist(), domains.tolist(), 0.1, conditional, True), check_dtype=False
    )
    same_domain = bottleneck_loss(z, torch.tensor([0, 0, 1, 1]), domains, 0.1, True, True)
    assert same_domain.item() == 0  # each class lives in one domain
