"""Optimizers. They need torch alone; rows of `OPTIMIZERS` that need more say so when they are built."""

from .fad import FAD as FAD
from .gam import GAM as GAM
from .genie import GENIE as GENIE
from .range_test import SuggestedRate as SuggestedRate
from .range_test import suggest_lr as suggest_lr
from .registry import OPTIMIZERS as OPTIMIZERS
from .registry import build_optimizer as build_optimizer
from .sagm import SAGM as SAGM
from .sam import SAM as SAM
from .swad import SWAD as SWAD

__all__ = [
    "FAD",
    "GAM",
    "GENIE",
    "OPTIMIZERS",
    "SAGM",
    "SAM",
    "SWAD",
    "SuggestedRate",
    "build_optimizer",
    "suggest_lr",
]
