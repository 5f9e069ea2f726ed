"""How right a model is on the splits of every domain, and what the records of a run say."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from genie_dg.algorithms.algorithm import Algorithm
from genie_dg.data.domains import DomainSet
from genie_dg.data.loaders import AugmentedEvaluation
from genie_dg.data.place import LabelledBatch
from genie_dg.data.splits import splits
from genie_dg.runs.config import RunConfig
from genie_dg.runs.record import Record
from genie_dg.statistics import mean

from .assemble import Parts
from .parallel import ALONE, World

_LOSS_EXPLODED = 10.0
"""How many times the loss at its start a loss is that has exploded."""


@dataclass(frozen=True)
class SplitScore:
    """Accuracy from 0 to 1, and mean cross-entropy."""

    accuracy: float
    loss: float


def score(algorithm: Algorithm, batches: Iterable[LabelledBatch], world: World = ALONE) -> SplitScore:
    """Accuracy and loss over batches, in evaluation mode; the mode is put back.

    The count of right answers is exact; losses are summed in float64, in the order of the batches. Several
    processes share the batches.

    Args:
        algorithm: what is evaluated.
        batches: where the algorithm is.
        world: the processes.
    """
    was = algorithm.training
    algorithm.eval()
    right, total, loss = 0, 0, 0.0
    answers = []  # a device is asked for all before it is waited for
    for images, labels in world.mine(batches):
        with torch.inference_mode():
            answers.append((algorithm.predict(images), labels))
    for logits, labels in answers:
        right += int((logits.argmax(1) == labels).sum())
        loss += float(cross_entropy(logits.cpu().double(), labels.cpu(), reduction="sum"))
        total += len(labels)
    algorithm.train(was)
    all_right, all_loss, count = world.sum(right, loss, total)
    return SplitScore(all_right / count, all_loss / count)


def make_record(parts: Parts, step: int, losses: Sequence[float]) -> Record:
    """Accuracies of the parts of domains, and the mean of the training losses since the last record."""
    scores = {}
    for key, batches in parts.evaluations.items():
        if isinstance(batches, AugmentedEvaluation):
            batches.at_step(step)
        scores[key] = score(parts.algorithm, batches, parts.world)
    domains = range(len(parts.domains))
    shortest = min(len(parts.training.samplers[k].positions) for k in range(len(parts.sources)))
    return Record(
        step=step,
        epoch=step * parts.config.batch_size / shortest,
        loss=mean(losses) if losses else None,
        validation_loss=mean(scores[k, "out"].loss for k in parts.sources),
        in_acc=tuple(scores[k, "in"].accuracy if (k, "in") in scores else None for k in domains),
        out_acc=tuple(scores[k, "out"].accuracy for k in domains),
    )


def has_stalled(records: Sequence[Record], config: RunConfig) -> bool:
    """Whether validation accuracy has not risen for as many records as the run's early stopping allows.

    >>> config = RunConfig("digits", (1,), early_stop=2)
    >>> reached = 0.5, 0.7, 0.7, 0.6
    >>> records = [Record(k, 0.0, None, None, (None, 0.0), (x, 0.0)) for k, x in enumerate(reached)]
    >>> has_stalled(records[:3], config), has_stalled(records, config)
    (False, True)
    """
    if not config.early_stop or not records:
        return False
    values = [record.validation(config.test_domains) for record in records]
    return len(values) - 1 - values.index(max(values)) >= config.early_stop


def chance(config: RunConfig, data: DomainSet) -> tuple[float, int]:
    """The accuracy of always guessing the most frequent class of the held-back samples that validate, and how
    many of these there are.
    """
    parts = splits(data, config.trial_seed)
    sources = [k for k in range(len(data.domains)) if k not in config.test_domains]
    labels = [data.domains[k].labels[parts[k].outside] for k in sources]
    counts = np.stack([np.bincount(some, minlength=len(data.classes)) / len(some) for some in labels])
    return float(counts.mean(0).max()), sum(len(some) for some in labels)


def problem_of(records: Sequence[Record], config: RunConfig, data: DomainSet) -> tuple[str, bool]:
    """A sentence about a run that went wrong, empty when it did not, and whether its loss exploded.

    Something was learned if the best validation accuracy is above chance by more than two binomial standard
    errors. The loss exploded if the last one is more than ten times the first. Penalties that set in late raise
    it, too, so the validation loss must have risen as much, or nothing have been learned.

    Args:
        records: of the run.
        config: of the run.
        data: the set it names, opened.
    """
    guess, samples = chance(config, data)
    best = max(record.validation(config.test_domains) for record in records)
    learned = best > guess + 2 * math.sqrt(guess * (1 - guess) / samples)
    lr = config.optimizer_settings.get("lr")
    now = "its default" if lr is None else f"{lr:g}"
    losses = [record.loss for record in records if record.loss is not None]
    first, last = (one.validation_loss or 0.0 for one in (records[0], records[-1]))
    raised = bool(losses) and losses[-1] > _LOSS_EXPLODED * abs(losses[0])
    if raised and (not learned or last > _LOSS_EXPLODED * first):
        what = f"The loss exploded: it was {losses[0]:.3g} at the start and is {losses[-1]:.3g} at the end"
        return f"{what}; the learning rate ({now}) is likely too high, so try --lr with a tenth of it.", True
    if not learned:
        what = (
            f"Nothing was learned: validation is {100 * best:.1f} % at best, guessing gives {100 * guess:.1f} %"
        )
        return f"{what}; try --lr with ten times its value ({now}) or a tenth of it, or more --steps.", False
    return "", False
