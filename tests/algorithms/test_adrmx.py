"""ADRMX against the game written sample by sample, with both optimizers written out."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from genie_dg._types import DomainBatch, StepContext
from genie_dg.algorithms.adrmx import ADRMX, contrastive, remix_pairs
from genie_dg.bench.step import take_step

from .networks import Adam, batch, descend, labelled, same, small_network, steppers

LR = 0.05
WEIGHTS = {"cnt_lambda": 0.7, "dclf_lambda": 1.3, "disc_lambda": 0.6, "rmxd_lambda": 0.9}
ADVERSARY = {"d_steps_per_g_step": 1, "beta1": 0.3, "mlp_width": 5, "mlp_depth": 3, "lr_": 0.02}
SETTINGS: dict[str, Any] = {**WEIGHTS, **ADVERSARY}


def uneven(seed: int = 1) -> DomainBatch:
    """Four classes: one in all domains, one in two, one alone in its domain twice, one not at all."""
    return labelled([0, 3, 3, 0, 0], [0, 0, 1], [1, 0, 1, 0], seed=seed)


def built(domains: int = 3, **more: Any) -> ADRMX:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(5)
        algorithm = ADRMX(small_network(classes=4), domains, **{**SETTINGS, **more})
    with torch.no_grad():  # few hidden units: none of them may be off for all samples
        for head in (algorithm.head, algorithm.final_head, algorithm.domain_network.head):
            for layer in (head[0], head[2]):  # type: ignore[index]
                layer.bias += 1
    return algorithm


def right(logits: Tensor, target: int) -> Tensor:
    """The cross-entropy of one sample."""
    return -torch.log(torch.exp(logits[target]) / torch.exp(logits).sum())


def contrastive_twin(z: Tensor, y: list[int]) -> Tensor:
    n, total, anchors = len(y), torch.zeros((), dtype=z.dtype), 0
    for i in range(n):
        e = {}
        for j in range(n):
            if j != i:
                length = torch.sqrt((z[i] * z[i]).sum()) * torch.sqrt((z[j] * z[j]).sum())
                e[j] = 0.5 * torch.exp((z[i] * z[j]).sum() / length / 0.07)
        partners = [j for j in e if y[j] == y[i]]
        if partners:
            below = 1e-5 + sum(e.values())
            logs = [torch.log(e[p] / below + 1e-5) for p in partners]
            total = total - sum(logs) / len(partners)
            anchors += 1
    return total / (anchors + 1)


class Twin:
    """The algorithm again, on a copy of its weights: plain sums over samples, updates by hand."""

    def __init__(self, algorithm: ADRMX, settings: dict[str, Any]) -> None:
        self.s = settings
        self.label, self.domain = small_network(classes=4), small_network(classes=4)
        state = algorithm.state_dict()
        names = [n for n in state if n.split(".")[0] not in ("network", "domain_network")]
        names += [n for n in state if n.startswith("domain_network.head")]
        self.w = {n: state[n].clone().requires_grad_() for n in names}
        adversary = [w for name, w in self.w.items() if name.startswith("disc")]
        self.adam = Adam(adversary, settings["lr_"], settings["beta1"], 0.9)

    def layers(self, prefix: str, places: list[int], x: Tensor) -> Tensor:
        for k in places:
            x = self.w[f"{prefix}.{k}.weight"] @ x + self.w[f"{prefix}.{k}.bias"]
            x = torch.where(x > 0, x, 0.0) if k != places[-1] else x
        return x

    def mean(self, prefix: str, xs: Any, targets: list[int]) -> Tensor:
        places = list(range(self.s["mlp_depth"])) if prefix.startswith("disc") else [0, 2, 4]
        losses = [right(self.layers(prefix, places, x), t) for x, t in zip(xs, targets, strict=True)]
        return torch.stack(losses).sum() / len(targets)

    def step(self, data: DomainBatch, context: StepContext) -> None:
        y = [int(label) for labels in data.labels for label in labels]
        d = [k for k, labels in enumerate(data.labels) for _ in labels]
        z, u = (torch.cat([net.features(x) for x in data.images]) for net in (self.label, self.domain))
        v = z - u
        distinguished = self.mean("discriminator.layers", v, d)
        every = 1 + self.s["d_steps_per_g_step"]
        if context.step % every != every - 1:
            self.adam.step(distinguished)
            return
        pairs = remix_pairs(y, d, context.generator())
        mixed = torch.zeros((), dtype=z.dtype)
        for i, j in pairs:
            mixed = mixed + self.mean("head", [v[i] + u[j]], [y[i]])
        loss = (
            self.mean("head", z, y)
            + self.mean("final_head", v, y)
            + self.s["dclf_lambda"] * self.mean("domain_network.head", u, d)
            + self.s["rmxd_lambda"] * mixed / 4
            + self.s["cnt_lambda"] * contrastive_twin(z, y)
            + self.s["cnt_lambda"] * contrastive_twin(v, y)
            - self.s["disc_lambda"] * distinguished
        )
        own = [w for name, w in self.w.items() if not name.startswith("disc")]
        own += [*self.label.featurizer.parameters(), *self.domain.featurizer.parameters()]
        descend(loss, own, LR)


@pytest.mark.parametrize("more", [{}, {"d_steps_per_g_step": 2, "mlp_depth": 2}], ids=["alternating", "two"])
def test_eight_steps_are_those_of_the_twin(more: dict[str, Any]) -> None:
    algorithm = built(**more)
    with torch.no_grad():  # apart from the start, where v is 0 and has no direction
        for p in algorithm.domain_network.featurizer.parameters():
            p.mul_(-0.5)
    twin, optimizers = Twin(algorithm, {**SETTINGS, **more}), steppers(algorithm, LR)
    twin.domain.featurizer.load_state_dict(algorithm.domain_network.featurizer.state_dict())
    for t in range(8):
        data, context = uneven(seed=t), StepContext(t, seed=2)
        twin.step(data, context)
        take_step(algorithm, optimizers, data, context)
        state = algorithm.state_dict()
        same([state[name] for name in twin.w], twin.w.values(), atol=1e-11)
        same(algorithm.network.featurizer, twin.label.featurizer, atol=1e-11)
        same(algorithm.domain_network.featurizer, twin.domain.featurizer, atol=1e-11)


def test_contrastive_against_its_twin() -> None:
    z = torch.randn(9, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = [0, 1, 0, 2, 2, 2, 5, 0, 1]  # 5 has no partner
    torch.testing.assert_close(contrastive(z, torch.tensor(y)), contrastive_twin(z, y), rtol=1e-12, atol=0)
    longer = contrastive(z * torch.arange(1.0, 10.0)[:, None], torch.tensor(y))
    torch.testing.assert_close(longer, contrastive(z, torch.tensor(y)))


def test_contrastive_inside_autocast_is_single_precision() -> None:
    z = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    with torch.autocast("cpu", torch.bfloat16):
        inside = contrastive(z, labels)
    assert inside.dtype == torch.float32
    torch.testing.assert_close(inside.double(), contrastive(z.double(), labels), rtol=1e-5, atol=0)


def test_pairs_are_of_one_class_and_two_domains() -> None:
    labels, domains = [0, 0, 1, 1, 2, 0, 3, 1, 3, 0], [0, 0, 0, 1, 1, 1, 2, 2, 2, 2]
    seen = set()
    for t in range(200):
        pairs = remix_pairs(labels, domains, StepContext(t).generator())
        assert [labels[i] for i, _ in pairs] == [0, 1]  # 2 occurs once, 3 in one domain only
        assert all(labels[i] == labels[j] and domains[i] != domains[j] for i, j in pairs)
        seen |= set(pairs)
    zeros, ones = [0, 1, 5, 9], [2, 3, 7]
    possible = {(i, j) for rows in (zeros, ones) for i in rows for j in rows if domains[i] != domains[j]}
    assert seen == possible


def test_a_batch_without_pairs_and_partners() -> None:
    algorithm, full = built(), batch(3, size=1, classes=4)
    data = DomainBatch(full.images, (torch.tensor([0]), torch.tensor([1]), torch.tensor([2])))
    optimizers = steppers(algorithm, LR)
    for t in range(4):
        losses = take_step(algorithm, optimizers, data, StepContext(t))
        assert all(math.isfinite(value) for value in losses.values())
