"""What a run's classes are trained towards: label smoothing, and weights of classes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from genie_dg.algorithms.algorithm import Algorithm
from genie_dg.algorithms.registry import ALGORITHMS
from genie_dg.check import InputError
from genie_dg.data.domains import Labels
from genie_dg.runs.config import RunConfig


def balanced_weights(labels: Sequence[Labels], classes: int) -> Tensor:
    r"""Weights :math:`w_c = n / (k\, n_c)` of classes, whose mean over the samples is 1.

    Args:
        labels: of all samples that train, domain by domain; n in all, :math:`n_c` of class c.
        classes: how many there are; k of them have samples, and the others get the weight 0.

    >>> balanced_weights([np.array([0, 0]), np.array([0, 2])], 3).tolist()
    [0.6666666865348816, 0.0, 2.0]
    """
    counts = np.bincount(np.concatenate(list(labels)), minlength=classes)
    there = counts > 0
    weights = np.where(there, counts.sum() / (there.sum() * np.maximum(counts, 1)), 0.0)
    return torch.tensor(weights, dtype=torch.float32)


def set_targets(algorithm: Algorithm, config: RunConfig, labels: Sequence[Labels], classes: int) -> None:
    """Give an algorithm the label smoothing and the weights of classes of its run.

    Args:
        algorithm: of the run.
        config: says which.
        labels: of the training parts of the training domains.
        classes: how many there are.
    """
    check_targets(config)
    algorithm.label_smoothing = config.label_smoothing
    if config.class_weights:
        algorithm.class_weights = balanced_weights(labels, classes)


def targets_of(config: RunConfig) -> str:
    """The settings of targets that a run uses, as text; empty for none.

    >>> targets_of(RunConfig("digits", (0,), label_smoothing=0.1))
    'label_smoothing=0.1'
    """
    used = {name: getattr(config, name) for name in ("label_smoothing", "class_weights")}
    return " and ".join(f"{name}={value}" for name, value in used.items() if value)


def check_targets(config: RunConfig, classified: bool = True) -> None:
    """Refuse smoothing and weights where they would change nothing, or one part of the loss only.

    Args:
        config: of the run.
        classified: whether the algorithm computes its loss with `Algorithm.classification_loss`.
    """
    row, asked = ALGORITHMS[config.algorithm], targets_of(config)
    why = row.plain_loss or ("" if classified else "it does not use Algorithm.classification_loss")
    if asked and why:
        raise InputError(
            f"got {asked} for {row.name}, which can have neither label smoothing nor class weights, because "
            f"{why}; leave them out, or choose another algorithm."
        )
