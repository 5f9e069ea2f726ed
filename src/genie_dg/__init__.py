"""genie-dg: optimization for domain generalization. ``from genie_dg import GENIE, load_model``."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from genie_dg.inference.model import load_model as load_model
    from genie_dg.optim.genie import GENIE as GENIE
    from genie_dg.optim.range_test import suggest_lr as suggest_lr

__version__ = "0.2.0"
__all__ = ["GENIE", "__version__", "load_model", "suggest_lr"]

_HOME = {"GENIE": "optim.genie", "load_model": "inference.model", "suggest_lr": "optim.range_test"}


def __getattr__(name: str) -> Any:
    """Resolve what is offered on first use, so that importing the package costs nothing."""
    if name not in _HOME:
        raise AttributeError(f"module 'genie_dg' has no attribute {name!r}; it offers {', '.join(__all__)}.")
    return getattr(import_module(f"genie_dg.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
