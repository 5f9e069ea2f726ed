"""Transfer against its game written sample by sample."""

from __future__ import annotations

import math
from typing import Any

import pytest
from torch import Tensor

from genie_dg._types import DomainBatch, StepContext
from genie_dg.algorithms.transfer import Transfer
from genie_dg.bench.step import take_step

from .networks import SmallNetwork, cut, descend, mean_loss, same, small_network, steppers

LR = 0.3
SETTINGS: dict[str, Any] = {"t_lambda": 0.7, "delta": 0.2, "d_steps_per_g": 3, "lr_d": 0.4}


class Twin:
    def __init__(self, network: SmallNetwork, s: dict[str, Any]) -> None:
        self.network, self.s = network, s
        self.second = [p.detach().clone().requires_grad_() for p in network.head.parameters()]
        self.projected = 0

    def gap(self, data: DomainBatch) -> Tensor:
        losses = []
        for images, labels in zip(data.images, data.labels, strict=True):
            z = self.network.features(images)
            losses.append(mean_loss(z @ self.second[0].T + self.second[1], labels))
        ranked = sorted(losses, key=lambda loss: loss.item())
        return self.s["t_lambda"] * (ranked[-1] - ranked[0])

    def step(self, data: DomainBatch) -> None:
        loss = mean_loss(self.network(data.all_images), data.all_labels)
        descend(loss, list(self.network.parameters()), LR)
        descend(self.gap(data), list(self.network.featurizer.parameters()), LR)
        centre = [p.detach().clone() for p in self.network.head.parameters()]
        for p, c in zip(self.second, centre, strict=True):
            p.data = c.clone()
        for _ in range(self.s["d_steps_per_g"]):
            descend(-self.gap(data), self.second, self.s["lr_d"])
            far = math.sqrt(sum(((p - c) ** 2).sum().item() for p, c in zip(self.second, centre, strict=True)))
            if far > self.s["delta"]:
                self.projected += 1
                for p, c in zip(self.second, centre, strict=True):
                    p.data = c + self.s["delta"] / far * (p.data - c)


@pytest.mark.parametrize("delta", [0.05, 100.0], ids=["small ball", "large ball"])
def test_steps_equal_the_twin(delta: float) -> None:
    settings = {**SETTINGS, "delta": delta}
    algorithm = Transfer(small_network(), 3, **settings)
    twin, optimizers, data = Twin(small_network(), settings), steppers(algorithm, LR), cut((5, 3, 4))
    for t in range(4):
        take_step(algorithm, optimizers, data, StepContext(t))
        twin.step(data)
        same(algorithm.network, twin.network)
        same(algorithm.adversary, twin.second)
    assert (twin.projected > 0) == (delta < 1)
