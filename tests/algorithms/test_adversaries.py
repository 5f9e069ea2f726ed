"""DANN and CDANN against the game written sample by sample, with Adam written out for the discriminator."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from genie_dg._types import DomainBatch, StepContext
from genie_dg.algorithms.adversarial import CDANN_ROW, DANN_ROW, Adversarial
from genie_dg.bench.step import take_step

from .networks import Adam, descend, labelled, same, small_network, steppers

LR = 0.3
SETTINGS: dict[str, Any] = {"mlp_width": 5, "lr_d": 0.02, "weight_decay_d": 0.1, "beta1": 0.3, "lambda_": 0.7}


def uneven() -> DomainBatch:
    """Four classes, one of which does not occur, the others unequally often; domains of different sizes."""
    return labelled([0, 3, 0, 1, 0], [0, 0, 1], [3, 0, 1, 1])


class Twin:
    """The algorithm again: explicit sums over samples, autograd for the gradients, updates by hand."""

    def __init__(self, algorithm: Adversarial, s: dict[str, Any], conditional: bool) -> None:
        self.s = {"d_steps_per_g_step": 1, "grad_penalty": 0.0, "mlp_depth": 3, "mlp_dropout": 0.0, **s}
        self.conditional = conditional
        self.network = small_network(classes=4)
        state = {k: v.clone() for k, v in algorithm.state_dict().items() if not k.startswith("network.")}
        self.adversary = {k: v.requires_grad_() for k, v in state.items()}
        self.adam = Adam(list(self.adversary.values()), s["lr_d"], s["beta1"], 0.9, s["weight_decay_d"])

    def logits(self, u: Tensor, factors: list[Tensor]) -> Tensor:
        depth = self.s["mlp_depth"]
        for k in range(depth):
            u = (
                self.adversary[f"discriminator.layers.{k}.weight"] @ u
                + self.adversary[f"discriminator.layers.{k}.bias"]
            )
            if k < depth - 1:
                u = torch.where(u > 0, u, 0.0) * factors[k]
        return u

    def domain_loss(self, z: Tensor, y: list[int], d: list[int], factors: list[Tensor]) -> Tensor:
        us, losses = [], []
        for i in range(len(y)):
            u = z[i] + self.adversary["class_embedding.weight"][y[i]] if self.conditional else z[i] * 1.0
            us.append(u if u.requires_grad else u.requires_grad_())
            p = torch.exp(self.logits(us[i], [f[i] for f in factors]))
            losses.append(-torch.log(p[d[i]] / p.sum()))
        if self.conditional:
            weights = [1 / (len(set(y)) * y.count(label)) for label in y]
            assert abs(sum(weights) - 1) < 1e-12
        else:
            weights = [1 / len(y)] * len(y)
        total = sum((w * loss for w, loss in zip(weights, losses, strict=True)), torch.zeros(()))
        slopes = [torch.autograd.grad(a, u, create_graph=True)[0] for a, u in zip(losses, us, strict=True)]
        penalty = sum(((g * g).sum() for g in slopes), torch.zeros(())) / len(y)
        return total + self.s["grad_penalty"] * penalty

    def step(self, data: DomainBatch, context: StepContext) -> None:
        y, d = data.all_labels.tolist(), [k for k, n in enumerate(data.sizes) for _ in range(n)]
        generator, p = context.generator(), self.s["mlp_dropout"]
        factors = []
        for _ in range(self.s["mlp_depth"] - 1):
            shape = (len(y), self.s["mlp_width"])
            kept = torch.rand(shape, generator=generator) >= p if p else torch.ones(shape)
            factors.append(kept.double() / (1 - p))
        z = self.network.features(data.all_images)
        d_steps = self.s["d_steps_per_g_step"]
        if context.step % (1 + d_steps) < d_steps:
            self.adam.step(self.domain_loss(z.detach(), y, d, factors))
            return
        logits = self.network.head(z)
        right = sum((-torch.log_softmax(logits[i], 0)[y[i]] for i in range(len(y))), torch.zeros(())) / len(y)
        loss = right - self.s["lambda_"] * self.domain_loss(z, y, d, factors)
        descend(loss, list(self.network.parameters()), LR)


@pytest.mark.parametrize("row", [DANN_ROW, CDANN_ROW], ids=lambda row: row.name)
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"grad_penalty": 0.8, "d_steps_per_g_step": 2},
        {"mlp_dropout": 0.4, "mlp_depth": 4},
        {"mlp_depth": 2, "grad_penalty": 0.3, "mlp_dropout": 0.5},
    ],
    ids=["plain", "penalty", "dropout", "shallow"],
)
def test_six_steps_equal_the_twin(row: Any, more: dict[str, Any]) -> None:
    settings = {**SETTINGS, **more}
    algorithm = row.build(small_network(classes=4), 3, **settings)
    twin = Twin(algorithm, settings, conditional=row is CDANN_ROW)
    optimizers, data = steppers(algorithm, LR), uneven()
    for t in range(6):
        take_step(algorithm, optimizers, data, StepContext(t, seed=4))
        twin.step(data, StepContext(t, seed=4))
        want = {f"network.{k}": v for k, v in twin.network.state_dict().items()} | twin.adversary
        got = algorithm.state_dict()
        assert set(got) == set(want)
        same(got.values(), [want[name] for name in got], rtol=1e-9, atol=1e-11)
