"""Dropout at the end of the featurizer, as DomainBed has it: twins of six algorithms that compare features.

A twin is a featurizer that ends in dropout, a linear classifier, the optimizers that DomainBed builds, and the
update written out. What the two sides draw at random is the same: dropout from torch's stream, seeded in each
step, and partners from the step's generator.
"""

from __future__ import annotations

import copy
from itertools import combinations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from genie_dg._types import DomainBatch, StepContext
from genie_dg.algorithms.algorithm import Algorithm
from genie_dg.algorithms.registry import ALGORITHMS
from genie_dg.bench.build import build_optimizers
from genie_dg.bench.step import take_step
from genie_dg.models._featurizer import Featurizer as Backbone
from genie_dg.models.classifier import Classifier
from genie_dg.runs.config import RunConfig

from .networks import Featurizer, batch

STEPS, LR = 20, 1e-3
ADVERSARY = {"mlp_width": 16, "lr_d": 2e-3, "weight_decay_d": 0.01, "grad_penalty": 0.3, "lambda_": 0.8}
SETTINGS: dict[str, dict[str, float]] = {
    "CORAL": {"mmd_gamma": 2.0},
    "MMD": {"mmd_gamma": 2.0},
    "DANN": ADVERSARY,
    "CDANN": ADVERSARY,
    "SagNet": {"sag_w_adv": 0.4},
    "MTL": {"mtl_ema": 0.7},
}


def network_of(dropout: float) -> Classifier:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return Classifier(Backbone(Featurizer(1), 6, {}, {}, False), 3, dropout).double()


class Twin:
    """The parts that the six have in common."""

    def __init__(self, algorithm: Algorithm, dropout: float) -> None:
        self.featurizer = nn.Sequential(copy.deepcopy(algorithm.network.featurizer), nn.Dropout(dropout))
        self.classifier = copy.deepcopy(algorithm.network.head)
        self.main = [*self.featurizer.parameters(), *self.classifier.parameters()]
        self.adam = torch.optim.Adam(self.main, lr=LR)
        self.start(algorithm)

    def start(self, algorithm: Algorithm) -> None:
        """What one algorithm has besides."""

    def descend(self, loss: Tensor, *optimizers: torch.optim.Adam) -> None:
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()


class AlignmentTwin(Twin):
    """Mean loss of the domains plus the mean distance over pairs, by entries and by pairs of samples."""

    def start(self, algorithm: Algorithm) -> None:
        self.kernel = type(algorithm).__name__ == "MMD"

    def update(self, data: DomainBatch, context: StepContext) -> None:
        z = [self.featurizer(x) for x in data.images]
        losses = [functional.cross_entropy(self.classifier(a), y) for a, y in zip(z, data.labels, strict=True)]
        pairs = list(combinations(z, 2))
        penalty = sum((self.mmd(a, b) if self.kernel else self.coral(a, b)) for a, b in pairs) / len(pairs)
        self.descend(sum(losses) / len(z) + 2.0 * penalty, self.adam)

    def coral(self, a: Tensor, b: Tensor) -> Tensor:
        return (a.mean(0) - b.mean(0)).pow(2).mean() + (torch.cov(a.T) - torch.cov(b.T)).pow(2).mean()

    def mmd(self, a: Tensor, b: Tensor) -> Tensor:
        def mean_kernel(s: Tensor, t: Tensor) -> Tensor:
            squares = torch.stack([torch.stack([(u - v).pow(2).sum() for v in t]) for u in s])
            return sum(torch.exp(-(10.0**k) * squares) for k in range(-3, 4)).mean()

        return mean_kernel(a, a) + mean_kernel(b, b) - 2 * mean_kernel(a, b)


class AdversaryTwin(Twin):
    """The network and the discriminator take turns; DomainBed's network begins, ours second."""

    def start(self, algorithm: Algorithm) -> None:
        layers = [copy.deepcopy(layer) for layer in algorithm.discriminator.layers]
        self.discriminator = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])
        self.embedding = copy.deepcopy(algorithm.class_embedding)
        rival = [*self.discriminator.parameters()]
        rival += [] if self.embedding is None else [*self.embedding.parameters()]
        self.rival = torch.optim.Adam(rival, lr=2e-3, weight_decay=0.01, betas=(0.5, 0.9))

    def update(self, data: DomainBatch, context: StepContext) -> None:
        z, y, d = self.featurizer(torch.cat(data.images)), data.all_labels, data.domain_labels
        seen = z if self.embedding is None else z + self.embedding(y)
        losses = functional.cross_entropy(self.discriminator(seen), d, reduction="none")
        if self.embedding is None:
            loss = losses.mean()
        else:
            counts = torch.bincount(y)
            loss = sum(value / (counts[k] * len(counts)) for value, k in zip(losses, y, strict=True))
        (slope,) = torch.autograd.grad(losses.sum(), seen, create_graph=True)
        loss = loss + 0.3 * slope.pow(2).sum(1).mean()
        if context.step % 2 == 0:
            self.descend(loss, self.rival)
        else:
            self.descend(functional.cross_entropy(self.classifier(z), y) - 0.8 * loss, self.adam)


class SagNetTwin(Twin):
    """Three losses and three optimizers; statistics over the entries of each vector."""

    def start(self, algorithm: Algorithm) -> None:
        self.style = copy.deepcopy(algorithm.style_head)
        assert isinstance(self.style, nn.Module)
        self.f = torch.optim.Adam(self.featurizer.parameters(), lr=LR)
        self.c = torch.optim.Adam(self.classifier.parameters(), lr=LR)
        self.s = torch.optim.Adam(self.style.parameters(), lr=LR)

    def update(self, data: DomainBatch, context: StepContext) -> None:
        x, y, generator = data.all_images, data.all_labels, context.generator()
        alpha = torch.rand(len(y), generator=generator)[:, None].double()
        one, two, three = (torch.randperm(len(y), generator=generator) for _ in range(3))
        z = self.featurizer(x)
        mean, spread = self.statistics(z)
        new_mean, new_spread = (alpha * v + (1 - alpha) * v[one] for v in (mean, spread))
        logits = self.classifier((z - mean) / spread * new_spread + new_mean)
        self.descend(functional.cross_entropy(logits, y), self.f, self.c)
        self.descend(functional.cross_entropy(self.style(self.other_content(x, two)), y), self.s)
        chances = self.style(self.other_content(x, three)).log_softmax(1)
        self.descend(-0.4 * chances.mean(), self.f)

    def other_content(self, x: Tensor, partner: Tensor) -> Tensor:
        z = self.featurizer(x)
        mean, spread = self.statistics(z)
        return ((z - mean) / spread)[partner].detach() * spread + mean

    def statistics(self, z: Tensor) -> tuple[Tensor, Tensor]:
        mean = z.mean(1, keepdim=True)
        return mean, ((z - mean).pow(2).mean(1, keepdim=True) + 1e-5).sqrt()


class MTLTwin(Twin):
    """The classifier sees the features and the running mean of the domain's features, dropout in both."""

    def start(self, algorithm: Algorithm) -> None:
        self.classifier = copy.deepcopy(algorithm.head)
        self.main = [*self.featurizer.parameters(), *self.classifier.parameters()]
        self.adam = torch.optim.Adam(self.main, lr=LR)
        self.means: list[Tensor] = []

    def update(self, data: DomainBatch, context: StepContext) -> None:
        losses, means = [], []
        for k, (x, y) in enumerate(zip(data.images, data.labels, strict=True)):
            z = self.featurizer(x)
            mean = 0.7 * z.mean(0) + 0.3 * self.means[k] if self.means else z.mean(0)
            losses.append(functional.cross_entropy(self.classifier(torch.cat([z, mean.expand_as(z)], 1)), y))
            means.append(mean.detach())
        self.means = means
        self.descend(sum(losses) / len(losses), self.adam)


TWINS: dict[str, type[Twin]] = {
    "CORAL": AlignmentTwin,
    "MMD": AlignmentTwin,
    "DANN": AdversaryTwin,
    "CDANN": AdversaryTwin,
    "SagNet": SagNetTwin,
    "MTL": MTLTwin,
}


@pytest.mark.parametrize("dropout", [0.1, 0.5])
@pytest.mark.parametrize("name", TWINS)
def test_the_features_that_are_compared_have_dropout(name: str, dropout: float) -> None:
    network = network_of(dropout)
    torch.manual_seed(1)
    algorithm = ALGORITHMS[name].build(network, 3, **SETTINGS[name]).double().train()
    twin = TWINS[name](algorithm, dropout)
    config = RunConfig("digits", (0,), name, "adam", optimizer_settings={"lr": LR})
    optimizers = build_optimizers(config, algorithm)
    for step in range(STEPS):
        data, context = batch(size=4, seed=step), StepContext(step, seed=5)
        torch.manual_seed(step)
        take_step(algorithm, optimizers, data, context)
        torch.manual_seed(step)
        twin.update(data, context)
    head = algorithm.head if name == "MTL" else algorithm.network.head
    ours = [*algorithm.network.featurizer.parameters(), *head.parameters()]
    theirs = [*twin.featurizer.parameters(), *twin.classifier.parameters()]
    for own, other in zip(ours, theirs, strict=True):
        difference = (own - other).abs().max() / other.abs().max()
        assert difference.item() <= 1e-10
