"""Optimizers. This room needs torch alone."""

from .genie import GENIE as GENIE

__all__ = ["GENIE"]
