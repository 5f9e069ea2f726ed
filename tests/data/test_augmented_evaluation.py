"""Evaluation with the training augmentation: each sample once, drawn anew at each evaluation, repeatable."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from genie_dg.bench.assemble import assemble
from genie_dg.bench.options import RunOptions
from genie_dg.bench.train import train
from genie_dg.data.augment import Recipe
from genie_dg.data.loaders import AugmentedEvaluation, Evaluation
from genie_dg.data.registry import open_data
from genie_dg.data.splits import InOrder
from genie_dg.runs.config import RunConfig

from .pictures import folder


def loader(root: Path) -> AugmentedEvaluation:
    domain = open_data(root).domains[0]
    order = InOrder(np.arange(len(domain))[::-1].copy(), batch_size=3, seed=5, domain=0)
    return AugmentedEvaluation(domain, order, Recipe(size=16))


def test_each_sample_comes_once_in_order_and_augmented(tmp_path: Path) -> None:
    evaluation = loader(folder(tmp_path, each=5))
    batches = list(evaluation.at_step(0))
    assert len(batches) == len(evaluation) == 4
    assert [len(labels) for _, labels in batches] == [3, 3, 3, 1]
    labels = torch.cat([labels for _, labels in batches])
    assert labels.tolist() == evaluation.domain.labels[evaluation.positions].tolist()
    plain = Evaluation(evaluation.domain, evaluation.positions, size=16, batch_size=3)
    assert not torch.equal(next(iter(plain))[0], batches[0][0])


def test_an_evaluation_is_drawn_anew_at_each_step_and_the_same_again(tmp_path: Path) -> None:
    evaluation = loader(folder(tmp_path))
    first, second, again = (torch.cat([x for x, _ in evaluation.at_step(step)]) for step in (0, 50, 0))
    assert torch.equal(first, again)
    assert not torch.equal(first, second)


@pytest.mark.parametrize(
    ("rule", "augmented"), [("none", set()), ("train", {(0, "in"), (0, "out")}), ("train-in", {(0, "in")})]
)
def test_the_protocol_says_which_parts_are_augmented(
    rule: str, augmented: set[tuple[int, str]], tmp_path: Path
) -> None:
    data = open_data(folder(tmp_path / "data", each=6))
    config = RunConfig(
        data.name, (1,), backbone="mlp", image_size=16, steps=3, checkpoint_every=2, batch_size=4
    )
    parts = assemble(replace(config, eval_augment=rule), data, RunOptions(evaluate="all"))
    found = {key for key, value in parts.evaluations.items() if isinstance(value, AugmentedEvaluation)}
    assert found == augmented
    records = train(parts, tmp_path / "run")
    assert len(records) == 2
