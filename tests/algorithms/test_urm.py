"""URM against its game written sample by sample, with Adam written out for the discriminator."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from genie_dg._types import StepContext
from genie_dg.algorithms.urm import URM
from genie_dg.bench.step import take_step

from .networks import Adam, batch, descend, same, small_network, steppers

LR = 0.3


def built(domains: int = 3, **settings: Any) -> URM:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(3)
        return URM(small_network(), domains, **settings)


class Twin:
    """Explicit sums; the discriminator's weights in the order of its layers."""

    def __init__(self, algorithm: URM, s: dict[str, Any]) -> None:
        self.network = small_network()
        self.w = [p.detach().clone().requires_grad_() for p in algorithm.discriminator.parameters()]
        self.s, self.momentum = s, [torch.zeros_like(p) for p in self.w]
        self.adam = Adam(self.w, s["lr"], decay=s["decay"])

    def shown(self, images: Tensor) -> Tensor:
        z = self.network.features(images)
        if self.s["output"] == "tanh":
            return (torch.exp(2 * z) - 1) / (torch.exp(2 * z) + 1)
        return torch.where(z > 0, z, 0.0) if self.s["output"] == "relu" else 1 / (1 + torch.exp(-z))

    def probability(self, u: Tensor) -> Tensor:
        for k in range(0, len(self.w), 2):
            u = self.w[k] @ u + self.w[k + 1]
            if k < len(self.w) - 2:
                u = torch.where(u > 0, u, 0.01 * u)
        return 1 / (1 + torch.exp(-u[0]))

    def surprise(self, rows: Tensor, targets: list[float]) -> Tensor:
        total = torch.zeros(())
        for row, target in zip(rows, targets, strict=True):
            p = self.probability(row)
            total = total - target * torch.log(p) - (1 - target) * torch.log(1 - p)
        return total / len(targets)

    def step(self, images: Tensor, labels: list[int], context: StepContext) -> None:
        n, generator, low = len(labels), context.generator(), -1.0 if self.s["output"] == "tanh" else 0.0
        noise = torch.rand(n, 6, generator=generator, dtype=torch.float64) * (1 - low) + low
        uniform = torch.rand(2, n, generator=generator, dtype=torch.float64)
        soft = self.s["smoothing"]
        real = [1 - soft + soft * u for u in uniform[0].tolist()]
        fake = [soft * u for u in uniform[1].tolist()]
        z = self.shown(images)
        logits = self.network.head(z)
        right = sum(-torch.log_softmax(logits[i], 0)[labels[i]] for i in range(n)) / n
        loss = right + self.s["weight"] * self.surprise(z, [1.0] * n)
        descend(loss, list(self.network.parameters()), LR)
        self.adversary(self.surprise(noise, real) + self.s["weight"] * self.surprise(z.detach(), fake))

    def adversary(self, loss: Tensor) -> None:
        if self.s["optimizer"] == "adam":
            self.adam.step(loss)
            return
        for k, (p, g) in enumerate(zip(self.w, torch.autograd.grad(loss, self.w), strict=True)):
            self.momentum[k] = 0.9 * self.momentum[k] + g + self.s["decay"] * p.detach()
            p.data -= self.s["lr"] * self.momentum[k]


@pytest.mark.parametrize(
    ("output", "smoothing", "layers", "optimizer", "decay"),
    [("tanh", 0.0, 1, "adam", 0.0), ("relu", 0.3, 2, "sgd", 0.1), ("sigmoid", 1.0, 0, "adam", 0.2)],
)
def test_steps_equal_the_twin(output: str, smoothing: float, layers: int, optimizer: str, decay: float) -> None:
    names = {"output": output, "smoothing": smoothing, "optimizer": optimizer, "decay": decay}
    adversary = {"label_smoothing": smoothing, "optimizer": optimizer, "hidden_layers": layers, "lr": 0.01}
    settings = {f"urm_discriminator_{name}": value for name, value in adversary.items()}
    algorithm = built(**settings, urm_adv_lambda=0.6, urm_generator_output=output, weight_decay_=decay)
    twin = Twin(algorithm, {**names, "weight": 0.6, "lr": 0.01})
    assert len(twin.w) == 2 * (2 + layers)
    optimizers, data = steppers(algorithm, LR), batch(3, size=3)
    for t in range(4):
        take_step(algorithm, optimizers, data, StepContext(t, seed=6))
        twin.step(data.all_images, data.all_labels.tolist(), StepContext(t, seed=6))
        same(algorithm.network, twin.network)
        same(algorithm.discriminator, twin.w, rtol=1e-9, atol=1e-11)
    logits = twin.network.head(twin.shown(data.all_images))
    torch.testing.assert_close(algorithm.predict(data.all_images), logits, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("output", "low"), [("tanh", -1.0), ("relu", 0.0), ("sigmoid", 0.0)])
def test_the_noise_fills_its_range(output: str, low: float) -> None:
    algorithm = built(urm_generator_output=output, urm_discriminator_label_smoothing=0.2)
    noise, (real, fake) = algorithm._drawn(torch.zeros(500, 1), StepContext(0).generator())
    for values, least, most in ((noise, low, 1.0), (real, 0.8, 1.0), (fake, 0.0, 0.2)):
        width = most - least
        assert least <= values.min() < least + 0.02 * width
        assert most - 0.02 * width < values.max() <= most
        assert values.mean().item() == pytest.approx((least + most) / 2, abs=0.05 * width)
