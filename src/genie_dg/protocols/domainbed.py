"""The protocol of DomainBed (Gulrajani, Lopez-Paz, ICLR 2021), with the search of its present code."""

from __future__ import annotations

from ._profile import Profile

DOMAINBED = Profile(
    "domainbed",
    "DomainBed: 5,001 steps, evaluated every 300, training domains judged under augmentation",
    steps={"default": 5001},
    checkpoint_every={"default": 300, "DomainNet": 1000, "small": 100},
    eval_augment="train",
    draws="by-name",
    oracle="last",
)
"""Each random value has a stream named after it, so a new setting moves no other."""
