"""MTL and ARM against slow float64 twins: whole updates, the state between steps, predictions."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d

from genie_dg._types import MAIN, DomainBatch, StepContext
from genie_dg.algorithms import arm, mtl
from genie_dg.bench.step import take_step

from .networks import SmallNetwork, batch, cut, descend, mean_loss, small_network

LR = 0.5


def sample_loss(z: Tensor, y: Tensor) -> Tensor:
    return mean_loss(z[None], y[None])


class MTLTwin:
    """Sample by sample; the averages in a list that starts empty."""

    def __init__(self, algorithm: mtl.MTL) -> None:
        self.ema = algorithm.mtl_ema
        self.featurizer = copy.deepcopy(algorithm.network.featurizer)
        linear = copy.deepcopy(algorithm.head)
        self.weight, self.bias = linear.weight, linear.bias
        self.averages: list[Tensor] = []

    def logits(self, features: Tensor, m: Tensor) -> list[Tensor]:
        d = len(m)
        return [self.weight[:, :d] @ z + self.weight[:, d:] @ m + self.bias for z in features]

    def step(self, data: DomainBatch) -> float:
        losses, averages = [], []
        for k, (x, y) in enumerate(zip(data.images, data.labels, strict=True)):
            features = self.featurizer(x)
            m = sum(features) / len(y)
            if self.averages:
                m = (1 - self.ema) * self.averages[k] + self.ema * m
            averages.append(m.detach().clone())
            losses += [sample_loss(z, label) for z, label in zip(self.logits(features, m), y, strict=True)]
        loss = sum(losses) / len(losses)
        descend(loss, self.parameters(), LR)
        self.averages = averages
        return loss.item()

    def parameters(self) -> list[nn.Parameter]:
        return [*self.featurizer.parameters(), self.weight, self.bias]


@pytest.mark.parametrize("ema", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("sizes", [(6, 6, 6), (5, 1, 6), (4,)])
def test_mtl_follows_its_twin(ema: float, sizes: tuple[int, ...]) -> None:
    algorithm = mtl.MTL(small_network(), len(sizes), mtl_ema=ema)
    unused = copy.deepcopy(algorithm.network.head.state_dict())
    twin = MTLTwin(algorithm)
    optimizer = torch.optim.SGD(algorithm.roles()[MAIN].parameters, lr=LR)
    for step in range(4):
        data = cut(sizes, seed=step)
        losses = take_step(algorithm, {MAIN: optimizer}, data, StepContext(step))
        assert losses[MAIN] == pytest.approx(twin.step(data), rel=1e-11)
        torch.testing.assert_close(algorithm.embeddings, torch.stack(twin.averages), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(list(algorithm.roles()[MAIN].parameters), twin.parameters())
    assert all(torch.equal(v, unused[k]) for k, v in algorithm.network.head.state_dict().items())


def test_mtl_predicts_with_the_mean_features_of_the_given_images() -> None:
    algorithm = mtl.MTL(small_network(), 3)
    twin, images = MTLTwin(algorithm), cut((5,), seed=9).images[0]
    take_step(algorithm, {MAIN: torch.optim.SGD(algorithm.parameters(), lr=0.0)}, batch(), StepContext(0))
    before = copy.deepcopy(algorithm.state_dict())
    features = twin.featurizer(images)
    expected = torch.stack(twin.logits(features, sum(features) / 5))
    torch.testing.assert_close(algorithm.predict(images), expected)
    assert algorithm.predict(images[:1]).shape == (1, 3)
    assert all(torch.equal(v, before[k]) for k, v in algorithm.state_dict().items())


class ARMTwin:
    """The context network written out, batch norm included."""

    def __init__(self, algorithm: arm.ARM) -> None:
        self.network = copy.deepcopy(algorithm.network)
        self.context = copy.deepcopy(algorithm.context)
        self.statistics = [(torch.zeros(64, dtype=torch.float64), torch.ones(64, dtype=torch.float64))] * 2

    def normalised(self, x: Tensor, place: int, training: bool) -> Tensor:
        if training:
            n = x.numel() // x.shape[1]
            mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3), correction=0)
            new, old = (mean.detach(), variance.detach() * n / (n - 1)), self.statistics[place]
            self.statistics[place] = (0.9 * old[0] + 0.1 * new[0], 0.9 * old[1] + 0.1 * new[1])
        else:
            mean, variance = self.statistics[place]
        scale, shift = self.context[3 * place + 1].weight, self.context[3 * place + 1].bias
        centred = (x - mean[:, None, None]) / (variance[:, None, None] + 1e-5).sqrt()
        return centred * scale[:, None, None] + shift[:, None, None]

    def contexts(self, images: Tensor, training: bool) -> Tensor:
        x = images
        for place in range(2):
            layer = self.context[3 * place]
            x = self.normalised(conv2d(x, layer.weight, layer.bias, padding=2), place, training).clamp_min(0)
        return conv2d(x, self.context[6].weight, self.context[6].bias, padding=2)

    def step(self, data: DomainBatch) -> float:
        contexts = iter(self.contexts(torch.cat(data.images), training=True))
        losses = []
        for x, y in zip(data.images, data.labels, strict=True):
            mean = sum(next(contexts) for _ in y) / len(y)
            for image, label in zip(x, y, strict=True):
                losses.append(sample_loss(self.network(torch.cat([image, mean])[None])[0], label))
        loss = sum(losses) / len(losses)
        descend(loss, self.parameters(), LR)
        return loss.item()

    def parameters(self) -> list[nn.Parameter]:
        return [*self.network.parameters(), *self.context.parameters()]


@pytest.mark.parametrize("sizes", [(4, 4, 4), (5, 1, 3), (4,)])
@pytest.mark.parametrize("channels", [1, 3])
def test_arm_follows_its_twin(sizes: tuple[int, ...], channels: int) -> None:
    algorithm = arm.ARM(small_network(channels=channels + 1), len(sizes))
    twin = ARMTwin(algorithm)
    optimizer = torch.optim.SGD(algorithm.roles()[MAIN].parameters, lr=LR)
    for step in range(2):
        data = cut(sizes, step, channels)
        losses = take_step(algorithm, {MAIN: optimizer}, data, StepContext(step))
        assert losses[MAIN] == pytest.approx(twin.step(data), rel=1e-10)
    torch.testing.assert_close(
        list(algorithm.roles()[MAIN].parameters), twin.parameters(), rtol=1e-7, atol=1e-9
    )

    algorithm.eval()
    images = cut((5,), 9, channels).images[0]
    mean = sum(twin.contexts(images, training=False)) / 5
    expected = torch.stack([twin.network(torch.cat([image, mean])[None])[0] for image in images])
    torch.testing.assert_close(algorithm.predict(images), expected, rtol=1e-7, atol=1e-9)
    assert algorithm.predict(images[:1]).shape == (1, 3)


def featurizer(layer: nn.Module) -> SmallNetwork:
    network = small_network()
    network.featurizer = layer
    return network


def test_arm_refuses_networks_and_inputs_that_have_no_channels() -> None:
    linear = nn.Sequential(nn.Linear(4, 6), nn.Conv2d(4, 6, 3))
    for network in (featurizer(linear), featurizer(nn.Flatten()), small_network(channels=1)):
        with pytest.raises(ValueError, match=r"^ARM got a network whose first layer is .* algorithm\.$"):
            arm.ARM(network, 2)
    with pytest.raises(ValueError, match=r"^ARM got inputs of shape \(5, 7\); .* flat inputs\.$"):
        arm.ARM(small_network(channels=2), 2).predict(torch.zeros(5, 7, dtype=torch.float64))
