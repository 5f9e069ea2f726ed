"""Named streams of random numbers, the same for every optimizer.

Splits, initial weights, batches and dropout depend on (data set, test domains, trial) alone. Two optimizers, or
two algorithms, therefore start from the same weights and see the same samples; what differs between them is the
update. The noise that an optimizer adds by itself has a stream of its own.
"""

from __future__ import annotations

import hashlib

from genie_dg.runs.config import RunConfig


def seed_of(purpose: str, config: RunConfig) -> int:
    """A seed below 2^62 for one purpose of one (data set, test domains, trial).

    >>> a = RunConfig("digits", (0,), optimizer="adam")
    >>> b = RunConfig("digits", (0,), optimizer="genie", dropout=0.1)
    >>> seed_of("batches", a) == seed_of("batches", b), seed_of("batches", a) == seed_of("weights", a)
    (True, False)
    """
    text = f"{purpose}/{config.dataset}/{list(config.test_domains)}/{config.trial_seed}"
    return int.from_bytes(hashlib.sha256(text.encode("utf-8")).digest()[:8], "big") >> 2
