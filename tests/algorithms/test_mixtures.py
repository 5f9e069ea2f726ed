"""CausIRL against its two mixtures written sample by sample."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from genie_dg._types import DomainBatch, StepContext
from genie_dg.algorithms import alignment
from genie_dg.algorithms.alignment import CAUSIRL_CORAL_ROW, CAUSIRL_MMD_ROW
from genie_dg.bench.step import take_step

from .networks import SmallNetwork, batch, cut, descend, same, small_network
from .test_penalties import kernel_twin, moment_twin

LR, GAMMA = 0.3, 0.7
ROWS = pytest.mark.parametrize("row", [CAUSIRL_CORAL_ROW, CAUSIRL_MMD_ROW], ids=lambda row: row.name)


def twin_loss(network: SmallNetwork, data: DomainBatch, context: StepContext, name: str) -> Tensor:
    generator = context.generator()
    first: list[Tensor] = []
    second: list[Tensor] = []
    loss = torch.zeros(())
    for images, labels in zip(data.images, data.labels, strict=True):
        place = int(torch.randint(len(labels), (), generator=generator))
        z = network.features(images)
        logits = network.head(z)
        for i in range(len(labels)):
            loss = loss - torch.log_softmax(logits[i], 0)[labels[i]] / len(labels) / len(data)
            (first if i < place else second).append(z[i])
    if len(first) < 2 or len(second) < 2:
        return loss
    distance = moment_twin if name == "CausIRL-CORAL" else kernel_twin
    return loss + GAMMA * distance(torch.stack(first), torch.stack(second))


@ROWS
@pytest.mark.parametrize("domains", [1, 3])
def test_steps_equal_the_twin(row: Any, domains: int) -> None:
    algorithm, network = row.build(small_network(), domains, mmd_gamma=GAMMA), small_network()
    data = cut((5, 3, 4)) if domains == 3 else batch(1, size=5)
    optimizer, penalised = torch.optim.SGD(algorithm.parameters(), lr=LR), 0
    for t in range(6):
        context = StepContext(t, seed=3)
        cuts = alignment.random_cuts(data.sizes, context.generator())
        penalised += 2 <= sum(cuts) <= sum(data.sizes) - 2
        take_step(algorithm, {"main": optimizer}, data, context)
        descend(twin_loss(network, data, context, row.name), list(network.parameters()), LR)
        same(algorithm, network)
    assert penalised > 2


@ROWS
def test_a_mixture_of_one_sample_has_no_penalty(row: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    data, plain = batch(2, size=2), []
    for cuts in ([0, 0], [1, 0], [1, 1], [0, 1]):
        monkeypatch.setattr(alignment, "random_cuts", lambda sizes, generator, cuts=cuts: cuts)
        losses = []
        for gamma in (0.0, 1.0):
            (objective,) = row.build(small_network(), 2, mmd_gamma=gamma).objectives(data, StepContext(0))
            losses.append(objective.loss().item())
        assert all(math.isfinite(loss) for loss in losses)
        plain.append(losses[0] == losses[1])
    assert plain == [True, True, False, True]
