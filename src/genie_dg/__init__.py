"""genie-dg: optimization for domain generalization. ``from genie_dg import GENIE, load_model``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from genie_dg.inference.model import load_model as load_model
    from genie_dg.optim.genie import GENIE as GENIE

__version__ = "0.2.0"
__all__ = ["GENIE", "__version__", "load_model"]


def __getattr__(name: str) -> Any:
    """Resolve what is offered on first use, so that importing the package costs nothing."""
    if name == "GENIE":
        from genie_dg.optim.genie import GENIE

        return GENIE
    if name == "load_model":
        from genie_dg.inference.model import load_model

        return load_model
    raise AttributeError(f"module 'genie_dg' has no attribute {name!r}; it offers {', '.join(__all__)}.")
