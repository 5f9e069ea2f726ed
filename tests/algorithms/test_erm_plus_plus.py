"""ERM++ against a twin that remembers the weights of every step and averages them at the end."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from genie_dg._types import StepContext
from genie_dg.algorithms.erm_plus_plus import ERMPlusPlus
from genie_dg.bench.step import StepSettings, take_step

from .networks import Adam, SmallNetwork, batch, descend, mean_loss, same, small_network, steppers

LR, LINEAR_LR, LINEAR_STEPS, START, STEPS = 0.02, 0.05, 3, 6, 10
SETTINGS: dict[str, Any] = {"linear_lr": LINEAR_LR, "linear_steps": LINEAR_STEPS, "sma_start_iter": START}


def normed() -> SmallNetwork:
    """The small network with a batch norm after its first convolution, whose statistics are not 0 and 1."""
    network = small_network()
    norm = nn.BatchNorm2d(4, dtype=torch.float64)
    norm.running_mean.add_(torch.linspace(-1, 1, 4, dtype=torch.float64))  # type: ignore[union-attr]
    network.featurizer.early = nn.Sequential(network.featurizer.early, norm)  # type: ignore[assignment]
    return network


class Descent:
    """w - lr g."""

    def __init__(self, parameters: list[Tensor], lr: float) -> None:
        self.parameters, self.lr = parameters, lr

    def step(self, loss: Tensor) -> None:
        descend(loss, self.parameters, self.lr)


@pytest.mark.parametrize(("kind", "twin"), [(torch.optim.SGD, Descent), (torch.optim.Adam, Adam)])
def test_ten_steps_are_those_of_the_twin(kind: Any, twin: Any) -> None:
    algorithm, slow = ERMPlusPlus(small_network(), 3, **SETTINGS), small_network()
    optimizers = {name: kind(role.parameters, lr=LR) for name, role in algorithm.roles().items()}
    head, all_of_it = twin(list(slow.head.parameters()), LINEAR_LR), twin(list(slow.parameters()), LR)
    history = []
    for t in range(STEPS):
        data = batch(seed=t)
        loss = mean_loss(slow(data.all_images), data.all_labels)
        (head if t < LINEAR_STEPS else all_of_it).step(loss)
        history.append([p.detach().clone() for p in slow.parameters()])
        losses = take_step(algorithm, optimizers, data, StepContext(t))
        assert losses == {"linear" if t < LINEAR_STEPS else "main": pytest.approx(loss.item(), rel=1e-12)}
        same(algorithm.network, slow)
        kept = history[START - 2 :] if t + 1 >= START else history[-1:]  # history[k] is after step k + 1
        same(algorithm.averaged, [torch.stack(column).mean(0) for column in zip(*kept, strict=True)])
    assert not torch.allclose(history[-1][0], history[START][0])
    algorithm.eval()
    images = batch(seed=99).images[0]
    assert torch.equal(algorithm.predict(images), algorithm.averaged(images))
    assert not torch.allclose(algorithm.predict(images), algorithm.network(images))


def test_batch_norm_statistics_of_the_average() -> None:
    """They are averaged, then moved by the batch as the averaged network sees it."""
    algorithm = ERMPlusPlus(normed(), 3, **SETTINGS)
    optimizers = steppers(algorithm, LR)
    mean, variance = (x.clone() for x in statistics(normed()))
    for t in range(STEPS):
        data = batch(seed=t)
        take_step(algorithm, optimizers, data, StepContext(t))
        new_mean, new_variance = statistics(algorithm.network)
        n = t + 1 - START + 1  # weights that are in the average already
        if n >= 1:
            mean = (n * mean + new_mean) / (n + 1)
            variance = (n * variance + new_variance) / (n + 1)
        else:
            mean, variance = new_mean.clone(), new_variance.clone()
        convolution = algorithm.averaged.featurizer.early[0]  # type: ignore[index]
        maps = convolution(data.all_images).transpose(0, 1).flatten(1)
        mean = 0.9 * mean + 0.1 * torch.stack([row.sum() / len(row) for row in maps])
        spread = [((row - row.sum() / len(row)) ** 2).sum() / (len(row) - 1) for row in maps]
        variance = 0.9 * variance + 0.1 * torch.stack(spread)
        torch.testing.assert_close(statistics(algorithm.averaged), (mean, variance), rtol=1e-10, atol=1e-12)
    assert not torch.allclose(new_mean, mean)


def statistics(network: Any) -> tuple[Tensor, Tensor]:
    norm = network.featurizer.early[1]
    return norm.running_mean, norm.running_var


def test_frozen_statistics_stay_and_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm = ERMPlusPlus(normed(), 3, **SETTINGS)
    before = [x.clone() for x in statistics(algorithm.network)]
    optimizers = steppers(algorithm, LR)
    for network in (algorithm.network, algorithm.averaged):
        network.featurizer.early[1].eval()  # type: ignore[index]
    monkeypatch.setattr(algorithm.averaged, "features", None)  # calling it would fail
    for t in range(STEPS):
        take_step(algorithm, optimizers, batch(seed=t), StepContext(t))
    for network in (algorithm.network, algorithm.averaged):
        for ours, old in zip(statistics(network), before, strict=True):
            torch.testing.assert_close(ours, old, rtol=1e-14, atol=0)


def test_the_head_has_a_rate_of_its_own_that_follows_the_optimizers_default() -> None:
    algorithm = ERMPlusPlus(small_network(), 3, **SETTINGS)
    sgd = {name: torch.optim.SGD(role.parameters, lr=1.0) for name, role in algorithm.roles().items()}
    take_step(algorithm, sgd, batch(), StepContext(0), StepSettings(default_lr=5e-4))  # ten times Adam's
    assert sgd["linear"].param_groups[0]["lr"] == pytest.approx(10 * LINEAR_LR)
    assert sgd["main"].param_groups[0]["lr"] == 1.0
    assert all(p.grad is None for p in algorithm.network.featurizer.parameters())
