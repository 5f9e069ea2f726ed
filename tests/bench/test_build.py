"""What is built from a configuration: streams of noise, label smoothing and weights of classes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from genie_dg._types import StepContext
from genie_dg.algorithms.erm import ERM
from genie_dg.algorithms.registry import ALGORITHMS
from genie_dg.bench.assemble import assemble
from genie_dg.bench.build import balanced_weights
from genie_dg.bench.checks import try_out
from genie_dg.bench.step import batch_of
from genie_dg.check import InputError
from genie_dg.data.domains import DomainSet
from genie_dg.data.splits import splits
from genie_dg.models.classifier import build_network
from genie_dg.runs.config import RunConfig

CONFIG = RunConfig(
    "digits", (5,), optimizer="sgd", backbone="cnn", batch_size=4, label_smoothing=0.1, class_weights="balanced"
)


def twin(logits: Tensor, labels: Tensor, weights: list[float], smoothing: float) -> list[float]:
    """Sample by sample and class by class, in float64."""
    losses = []
    for z, y in zip(logits.double().tolist(), labels.tolist(), strict=True):
        total = sum(np.exp(x) for x in z)
        loss = 0.0
        for c, x in enumerate(z):
            target = smoothing / len(z) + (1 - smoothing if c == y else 0.0)
            loss -= weights[c] * target * np.log(np.exp(x) / total)
        losses.append(loss)
    return losses


def test_the_loss_is_that_of_the_twin() -> None:
    torch.manual_seed(0)
    logits, labels = torch.randn(6, 3), torch.tensor([0, 1, 1, 0, 1, 1])
    algorithm = ERM(build_network("mlp", 3, 1, 4), 1)
    plain = nn.functional.cross_entropy(logits, labels)
    assert torch.equal(algorithm.classification_loss(logits, labels), plain)
    algorithm.label_smoothing = 0.2
    algorithm.class_weights = balanced_weights([labels[:2].numpy(), labels[2:].numpy()], 3)
    weights = [6 / (2 * 2), 6 / (2 * 4), 0.0]
    assert algorithm.class_weights.tolist() == weights
    assert sum(weights[y] for y in labels.tolist()) / 6 == 1.0
    expected = twin(logits, labels, weights, 0.2)
    for reduction, value in (
        ("none", expected),
        ("sum", sum(expected)),
        ("mean", sum(expected) / sum(weights[y] for y in labels.tolist())),
    ):
        loss = algorithm.classification_loss(logits, labels, reduction)
        assert loss.tolist() == pytest.approx(value, rel=1e-5)
    assert algorithm.classification_loss(logits.double(), labels).dtype == torch.float64
    assert "class_weights" not in algorithm.state_dict()


def test_a_run_counts_the_training_parts_of_its_training_domains(digits: DomainSet) -> None:
    parts = assemble(CONFIG, digits)
    insides = splits(digits, CONFIG.trial_seed)
    labels = np.concatenate([digits.domains[k].labels[insides[k].inside] for k in range(5)])
    counts = [int((labels == c).sum()) for c in range(10)]
    assert parts.algorithm.class_weights is not None
    assert parts.algorithm.class_weights.tolist() == pytest.approx([len(labels) / (10 * n) for n in counts])
    assert parts.algorithm.label_smoothing == 0.1


@pytest.mark.parametrize("name", [row.name for row in ALGORITHMS.values()])
def test_every_algorithm_has_them_or_refuses(name: str, digits: DomainSet) -> None:
    config = replace(CONFIG, algorithm=name)
    if ALGORITHMS[name].plain_loss:
        with pytest.raises(InputError, match=f"class_weights=balanced for {name}, which can have neither"):
            try_out([config], {"digits": digits})
        return
    try_out([config], {"digits": digits})
    losses = {}
    for smoothing in (0.0, 0.5):
        parts = assemble(replace(config, label_smoothing=smoothing, class_weights=""), digits)
        batch = batch_of(parts.training.at(0))
        torch.manual_seed(0)
        contexts = [StepContext(step) for step in range(6)]  # an adversary may be first
        objectives = [o for context in contexts for o in parts.algorithm.objectives(batch, context)]
        losses[smoothing] = [float(o.loss().detach()) for o in objectives]
    assert losses[0.0] != losses[0.5]
