"""What the objectives with a penalty share: losses of single domains, the weight's two stages, refusals."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from genie_dg._types import DomainBatch


def not_negative(owner: str, name: str, value: float) -> float:
    """The value itself when it is a finite number of 0 or more.

    >>> not_negative("IRM", "irm_lambda", -1.0)
    Traceback (most recent call last):
    ValueError: irm_lambda=-1.0 came; IRM takes a finite number of 0 or more; give such a number.
    """
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(
            f"{name}={value} came; {owner} takes a finite number of 0 or more; give such a number."
        )
    return value


def at_least_two(owner: str, batch: DomainBatch) -> None:
    """Refuse a batch in which a domain has a single sample."""
    if min(batch.sizes) < 2:
        raise ValueError(
            f"A batch with {batch.sizes} samples per domain came; {owner} needs 2 or more of each domain; "
            "raise the batch size."
        )


def two_stage_weight(step: int, first_steps: float, final: float) -> float:
    """1 in steps 0 to ``first_steps - 1``, then ``final``.

    >>> [two_stage_weight(step, 2, 100.0) for step in range(4)]
    [1.0, 1.0, 100.0, 100.0]
    """
    return final if step >= first_steps else 1.0


def by_domain(logits: Tensor, batch: DomainBatch) -> list[tuple[Tensor, Tensor]]:
    """For each domain its logits and its labels, from the logits of the pooled batch."""
    return list(zip(torch.split(logits, batch.sizes), batch.labels, strict=True))


def losses_of_domains(logits: Tensor, batch: DomainBatch) -> Tensor:
    """The mean cross entropy of each domain, from the logits of the pooled batch."""
    return torch.stack([cross_entropy(z, y) for z, y in by_domain(logits, batch)])
