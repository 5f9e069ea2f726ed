"""MIRO against its loss written entry by entry."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from genie_dg._types import DomainBatch, StepContext
from genie_dg.algorithms.miro import MIRO
from genie_dg.bench.step import take_step

from .networks import Normed, SmallNetwork, batch, same, small_network, steppers

LR, LD, FACTOR = 0.3, 0.6, 4.0


def activations(network: SmallNetwork, images: Tensor) -> list[Tensor]:
    early = torch.tanh(network.featurizer.early(images))
    return [early, torch.tanh(network.featurizer.late(early))]


def twin_loss(network: SmallNetwork, first: SmallNetwork, raw: list[Tensor], data: DomainBatch) -> Tensor:
    before, now = activations(first, data.all_images), activations(network, data.all_images)
    log_p = torch.log_softmax(network.head(now[-1].mean((2, 3))), 1)
    loss = -sum(log_p[i, y] for i, y in enumerate(data.all_labels.tolist())) / len(log_p)
    for f0, f, b in zip(before, now, raw, strict=True):
        total = torch.zeros((), dtype=torch.float64)
        for c in range(f.shape[1]):
            v = torch.log(1 + torch.exp(b[c])) + 1e-6
            for i in range(len(f)):
                total = total + (torch.log(v) + (f0[i, c].detach() - f[i, c]) ** 2 / v).sum() / 2
        loss = loss + LD * total / f.numel()
    assert isinstance(loss, Tensor)
    return loss


@pytest.mark.parametrize("domains", [1, 3])
def test_five_steps_equal_the_twin(domains: int) -> None:
    algorithm = MIRO(small_network(), domains, miro_ld=LD, miro_lr_mult=FACTOR)
    network, first, data = small_network(), small_network(), batch(domains, size=3)
    inverse = math.log(math.exp(0.1 - 1e-6) - 1)
    raw = [torch.full((n,), inverse, dtype=torch.float64, requires_grad=True) for n in (4, 6)]
    optimizers = steppers(algorithm, LR)
    for t in range(5):
        losses = take_step(algorithm, optimizers, data, StepContext(t))
        loss = twin_loss(network, first, raw, data)
        torch.testing.assert_close(losses["main"], loss.detach(), rtol=1e-10, atol=0)
        parameters = list(network.parameters())
        gradients = torch.autograd.grad(loss, parameters + raw)
        for k, (p, g) in enumerate(zip(parameters + raw, gradients, strict=True)):
            p.data -= LR * (1 if k < len(parameters) else FACTOR) * g
        same(algorithm.network, network, rtol=1e-9, atol=1e-11)
        same(algorithm.variances, raw, rtol=1e-9, atol=1e-11)
    assert all(map(torch.equal, algorithm.start.featurizer.parameters(), first.featurizer.parameters()))


def test_the_copy_never_trains() -> None:
    algorithm = MIRO(Normed().double(), 2)
    assert not algorithm.start.training
    algorithm.train()
    assert algorithm.network.training
    assert not algorithm.start.training
    assert not algorithm.start.norm.training  # type: ignore[union-attr]
    before = {k: v.clone() for k, v in algorithm.start.state_dict().items()}
    for t in range(2):
        take_step(algorithm, steppers(algorithm, LR), batch(2), StepContext(t))
    assert all(torch.equal(v, before[k]) for k, v in algorithm.start.state_dict().items())
    algorithm.eval()
    assert not algorithm.network.training


def test_wrong_input_is_refused() -> None:
    network = small_network()
    network.point_channels = {"early": 4, "late": 5}
    (objective,) = MIRO(network, 2).objectives(batch(2), StepContext(0))
    with pytest.raises(
        ValueError, match=r"^Got an activation of shape \(12, 6, 5, 5\); expected 5 channels .*\.$"
    ):
        objective.loss()
    network.points = ()
    with pytest.raises(ValueError, match=r"^MIRO got a network without feature points; .*\.$"):
        MIRO(network, 2)
