"""Optimizers. This room needs torch alone; rows of `OPTIMIZERS` that need more say so when they are built."""

from .fad import FAD as FAD
from .gam import GAM as GAM
from .genie import GENIE as GENIE
from .sam import SAM as SAM
from .swad import SWAD as SWAD
from .table import OPTIMIZERS as OPTIMIZERS
from .table import build_optimizer as build_optimizer

__all__ = ["FAD", "GAM", "GENIE", "OPTIMIZERS", "SAM", "SWAD", "build_optimizer"]
