"""What the records of a run say: that it may stop, that it learned nothing, that its loss exploded."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from genie_dg.data.domains import DomainSet
from genie_dg.data.splits import splits
from genie_dg.runs.config import RunConfig
from genie_dg.runs.record import Record

EXPLODED = 10.0
"""How many times the loss at its start a loss is that has exploded."""
MARGIN = 2.0
"""Standard errors above chance from which on something was learned."""


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


def has_learned(records: Sequence[Record], config: RunConfig, data: DomainSet) -> bool:
    """Whether the best validation accuracy is above chance by more than two binomial standard errors."""
    guess, samples = chance(config, data)
    best = max(record.validation(config.test_domains) for record in records)
    return best > guess + MARGIN * math.sqrt(guess * (1 - guess) / samples)


def has_exploded(records: Sequence[Record], learned: bool) -> bool:
    """Whether the last loss is more than ten times the first.

    Penalties that set in late raise the training loss of some algorithms, so the validation loss must have
    risen as much, or nothing have been learned.
    """
    known = [record.loss for record in records if record.loss is not None]
    raised = bool(known) and known[-1] > EXPLODED * abs(known[0])
    first, last = records[0].validation_loss, records[-1].validation_loss
    return raised and (not learned or (first is not None and last is not None and last > EXPLODED * first))


def problem_of(records: Sequence[Record], config: RunConfig, data: DomainSet) -> tuple[str, bool]:
    """A sentence about a run that went wrong, empty when it did not, and whether its loss exploded.

    Args:
        records: of the run.
        config: of the run.
        data: the set it names, opened.
    """
    learned = has_learned(records, config, data)
    lr = config.optimizer_settings.get("lr")
    now = "its default" if lr is None else f"{lr:g}"
    if has_exploded(records, learned):
        losses = [record.loss for record in records if record.loss is not None]
        return (
            f"The loss exploded: it was {losses[0]:.3g} at the start and is {losses[-1]:.3g} at the end; the "
            f"learning rate of {config.optimizer} ({now}) is likely too high, so try --lr with a tenth of it, "
            "--warmup or --clip 1."
        ), True
    if not learned:
        best = max(record.validation(config.test_domains) for record in records)
        return (
            f"Nothing was learned: validation is {100 * best:.1f} % at best, and guessing the most frequent "
            f"class gives {100 * chance(config, data)[0]:.1f} %; the likely cause is the learning rate of "
            f"{config.optimizer} ({now}), so try --lr with ten times it or a tenth of it, or more --steps."
        ), False
    return "", False
