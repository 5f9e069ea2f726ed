"""Optimizers. They need torch alone; rows of `OPTIMIZERS` that need more say so when they are built."""

from .fad import FAD
from .gam import GAM
from .genie import GENIE
from .range_test import SuggestedRate, suggest_lr
from .registry import OPTIMIZERS, build_optimizer
from .sagm import SAGM
from .sam import SAM
from .swad import SWAD

__all__ = ["FAD", "GAM", "GENIE", "OPTIMIZERS", "SAGM", "SAM", "SWAD"]
__all__ += ["SuggestedRate", "build_optimizer", "suggest_lr"]
