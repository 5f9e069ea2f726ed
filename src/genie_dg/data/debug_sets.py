"""DomainBed's sets to try code with: noise in three domains, from which nothing can be learned.

Differs from DomainBed in that the noise is the same every time; there it is drawn anew for each run.
"""

from __future__ import annotations

import torch

from .domains import DomainSet, TensorDomain

DOMAINS = ("0", "1", "2")
EACH = 16
"""Samples of a domain."""


def debug_set(size: int, name: str) -> DomainSet:
    """Sixteen samples of normal noise ``[3, size, size]`` in each domain, with labels 0 and 1 by chance."""
    generator = torch.Generator().manual_seed(size)
    domains = []
    for domain in DOMAINS:
        noise = torch.randn(EACH, 3, size, size, generator=generator)
        labels = torch.randint(0, 2, (EACH,), generator=generator).numpy()
        domains.append(TensorDomain(domain, noise, labels, as_is=True))
    return DomainSet(name, ("0", "1"), tuple(domains))


def debug28() -> DomainSet:
    """``Debug28``: small samples."""
    return debug_set(28, "Debug28")


def debug224() -> DomainSet:
    """``Debug224``: samples of the size of pictures."""
    return debug_set(224, "Debug224")
