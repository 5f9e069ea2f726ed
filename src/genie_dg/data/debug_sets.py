"""DomainBed's sets to try code with: noise in three domains, from which nothing can be learned.

Differs from DomainBed in that the noise is the same every time; there it is drawn anew for each run.
"""

from __future__ import annotations

import torch

from .domains import DomainSet, TensorDomain

_DOMAINS = ("0", "1", "2")
_EACH = 16
"""Samples of a domain."""


def debug_set(name: str) -> DomainSet:
    """Sixteen samples of normal noise in each domain, with labels 0 and 1 by chance.

    Args:
        name: ``Debug`` and the height and width of a sample: ``Debug28``, ``Debug224``.
    """
    size = int(name.removeprefix("Debug"))
    generator = torch.Generator().manual_seed(size)
    domains = []
    for domain in _DOMAINS:
        noise = torch.randn(_EACH, 3, size, size, generator=generator)
        labels = torch.randint(0, 2, (_EACH,), generator=generator).numpy()
        domains.append(TensorDomain(domain, noise, labels, as_is=True))
    return DomainSet(name, ("0", "1"), tuple(domains))
