"""What several packages must agree on, each fact once."""

from __future__ import annotations

import hashlib

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""By which pictures are normalised for networks with ImageNet weights: mean and spread of each channel."""


def seed_hash(*parts: object) -> int:
    """DomainBed's seed from anything: MD5 of the text of the tuple, below 2**31.

    >>> seed_hash(0, 0), seed_hash(9, 2)
    (894182419, 704807380)
    """
    return int(hashlib.md5(str(parts).encode("utf-8"), usedforsecurity=False).hexdigest(), 16) % 2**31
