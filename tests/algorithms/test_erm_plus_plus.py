"""ERM++ against a twin that remembers the weights of every step and averages them at the end."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from genie_dg._types import StepContext
from genie_dg.algorithms.erm_plus_plus import ROW, ERMPlusPlus, newest_share
from genie_dg.bench.step import StepSettings, take_step

from .networks import SmallNetwork, batch, small_network

LR, LINEAR_LR, LINEAR_STEPS, START, STEPS = 0.02, 0.05, 3, 6, 10
SETTINGS: dict[str, Any] = {
    "linear_lr": LINEAR_LR,
    "linear_steps": LINEAR_STEPS,
    "sma_start_iter": START,
}


def normed() -> SmallNetwork:
    """The small network with a batch norm after its first convolution, whose statistics are not 0 and 1."""
    network = small_network()
    norm = nn.BatchNorm2d(4, dtype=torch.float64)
    norm.running_mean.add_(torch.linspace(-1, 1, 4, dtype=torch.float64))  # type: ignore[union-attr]
    network.featurizer.early = nn.Sequential(network.featurizer.early, norm)  # type: ignore[assignment]
    return network


def optimizers(algorithm: ERMPlusPlus, kind: Any) -> dict[str, torch.optim.Optimizer]:
    return {name: kind(role.parameters, lr=LR) for name, role in algorithm.roles().items()}


class Adam:
    """Adam with torch's defaults, written out; it remembers nothing of another phase."""

    def __init__(self, parameters: list[Tensor], lr: float) -> None:
        self.parameters, self.lr, self.t = parameters, lr, 0
        self.m, self.v = ([torch.zeros_like(p) for p in parameters] for _ in range(2))

    def step(self, loss: Tensor) -> None:
        self.t += 1
        for k, g in enumerate(torch.autograd.grad(loss, self.parameters)):
            self.m[k] = 0.9 * self.m[k] + 0.1 * g
            self.v[k] = 0.999 * self.v[k] + 0.001 * g * g
            size = self.m[k] / (1 - 0.9**self.t) / ((self.v[k] / (1 - 0.999**self.t)).sqrt() + 1e-8)
            self.parameters[k].data -= self.lr * size


class Descent:
    """w - lr g."""

    def __init__(self, parameters: list[Tensor], lr: float) -> None:
        self.parameters, self.lr = parameters, lr

    def step(self, loss: Tensor) -> None:
        for p, g in zip(self.parameters, torch.autograd.grad(loss, self.parameters), strict=True):
            p.data -= self.lr * g


@pytest.mark.parametrize(("kind", "twin"), [(torch.optim.SGD, Descent), (torch.optim.Adam, Adam)])
def test_ten_steps_are_those_of_the_twin(kind: Any, twin: Any) -> None:
    algorithm, slow = ERMPlusPlus(small_network(), 3, **SETTINGS), small_network()
    steppers = optimizers(algorithm, kind)
    head, all_of_it = twin(list(slow.head.parameters()), LINEAR_LR), twin(list(slow.parameters()), LR)
    history = []
    for t in range(STEPS):
        data = batch(seed=t)
        logits = [slow(x) for x in data.images]
        samples = [
            -torch.log_softmax(row, 0)[label]
            for rows, labels in zip(logits, data.labels, strict=True)
            for row, label in zip(rows, labels, strict=True)
        ]
        loss = torch.stack(samples).sum() / len(samples)
        (head if t < LINEAR_STEPS else all_of_it).step(loss)
        history.append([p.detach().clone() for p in slow.parameters()])
        losses = take_step(algorithm, steppers, data, StepContext(t))
        assert losses == {"linear" if t < LINEAR_STEPS else "main": pytest.approx(loss.item(), rel=1e-12)}
        for p, q in zip(algorithm.network.parameters(), slow.parameters(), strict=True):
            torch.testing.assert_close(p, q, rtol=1e-10, atol=1e-12)
        kept = history[START - 2 :] if t + 1 >= START else history[-1:]  # history[k] is after step k + 1
        for p, column in zip(algorithm.averaged.parameters(), zip(*kept, strict=True), strict=True):
            torch.testing.assert_close(p, torch.stack(column).mean(0), rtol=1e-10, atol=1e-12)
    assert not torch.allclose(history[-1][0], history[START][0])
    algorithm.eval()
    images = batch(seed=99).images[0]
    assert torch.equal(algorithm.predict(images), algorithm.averaged(images))
    assert not torch.allclose(algorithm.predict(images), algorithm.network(images))


def test_batch_norm_statistics_of_the_average() -> None:
    """They are averaged, then moved by the batch as the averaged network sees it."""
    algorithm = ERMPlusPlus(normed(), 3, **SETTINGS)
    steppers, networks_own = optimizers(algorithm, torch.optim.SGD), normed()
    mean, variance = (x.clone() for x in statistics(networks_own))
    for t in range(STEPS):
        data = batch(seed=t)
        take_step(algorithm, steppers, data, StepContext(t))
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
    steppers = optimizers(algorithm, torch.optim.SGD)
    for network in (algorithm.network, algorithm.averaged):
        network.featurizer.early[1].eval()  # type: ignore[index]
    monkeypatch.setattr(algorithm.averaged, "features", None)  # calling it would fail
    for t in range(STEPS):
        take_step(algorithm, steppers, batch(seed=t), StepContext(t))
    for network in (algorithm.network, algorithm.averaged):
        for ours, old in zip(statistics(network), before, strict=True):
            torch.testing.assert_close(ours, old, rtol=1e-14, atol=0)


def test_the_head_alone_moves_at_first_and_at_its_own_rate() -> None:
    algorithm = ERMPlusPlus(small_network(), 3, **SETTINGS)
    steppers = optimizers(algorithm, torch.optim.SGD)
    start = {name: p.detach().clone() for name, p in algorithm.network.named_parameters()}
    data = batch()
    gradient = torch.autograd.grad(
        cross_entropy(algorithm.network(data.all_images), data.all_labels), algorithm.network.head.weight
    )[0]
    take_step(algorithm, steppers, data, StepContext(0))
    for name, p in algorithm.network.named_parameters():
        assert torch.equal(p, start[name]) == (not name.startswith("head."))
        assert name.startswith("head.") or p.grad is None
    torch.testing.assert_close(algorithm.network.head.weight, start["head.weight"] - LINEAR_LR * gradient)
    sgd = {name: torch.optim.SGD(role.parameters, lr=1.0) for name, role in algorithm.roles().items()}
    take_step(algorithm, sgd, data, StepContext(0), StepSettings(default_lr=5e-4))  # ten times Adam's
    assert sgd["linear"].param_groups[0]["lr"] == pytest.approx(10 * LINEAR_LR)
    assert sgd["main"].param_groups[0]["lr"] == 1.0


def test_without_a_linear_phase_there_is_one_role() -> None:
    algorithm = ERMPlusPlus(small_network(), 3, linear_steps=0)
    assert list(algorithm.roles()) == ["main"]
    losses = take_step(algorithm, optimizers(algorithm, torch.optim.SGD), batch(), StepContext(0))
    assert list(losses) == ["main"]


@pytest.mark.parametrize("at", [2, 5, 8])
def test_a_run_that_is_continued_is_the_same(at: int) -> None:
    runs = []
    for broken in (False, True):
        algorithm = ERMPlusPlus(normed(), 3, **SETTINGS)
        steppers = optimizers(algorithm, torch.optim.Adam)
        for t in range(STEPS):
            if broken and t == at:
                file = io.BytesIO()
                states = {name: one.state_dict() for name, one in steppers.items()}
                torch.save([algorithm.state_dict(), states], file)
                file.seek(0)
                state, states = torch.load(file, weights_only=True)
                algorithm = ERMPlusPlus(normed(), 3, **SETTINGS)
                algorithm.load_state_dict(state)
                steppers = optimizers(algorithm, torch.optim.Adam)
                for name, one in steppers.items():
                    one.load_state_dict(states[name])
            take_step(algorithm, steppers, batch(seed=t), StepContext(t))
        runs.append(algorithm.state_dict())
    assert all(torch.equal(runs[1][name], x) for name, x in runs[0].items())


def test_the_average_is_in_no_role_and_has_no_gradient() -> None:
    algorithm = ERMPlusPlus(small_network(), 3)
    stepped = {id(p) for role in algorithm.roles().values() for p in role.parameters}
    assert stepped == {id(p) for p in algorithm.network.parameters()}
    assert not any(p.requires_grad for p in algorithm.averaged.parameters())
    assert all(p.requires_grad for p in algorithm.network.parameters())


def test_a_start_at_the_first_step_holds_the_first_weights_too() -> None:
    assert [newest_share(steps, 1) for steps in (1, 2, 3)] == [1 / 2, 1 / 3, 1 / 4]
    assert ROW.space["linear_steps"].rule is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"linear_lr": -1.0},
        {"linear_lr": "fast"},
        {"linear_steps": -1},
        {"linear_steps": 2.5},
        {"sma_start_iter": 0},
    ],
    ids=str,
)
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(ValueError, match=rf"^got {name}=.*; expected .*\.$"):
        ERMPlusPlus(small_network(), 2, **wrong)
