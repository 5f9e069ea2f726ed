"""genie-dg: optimization for domain generalization. ``from genie_dg import GENIE``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from genie_dg.optim.genie import GENIE as GENIE

__version__ = "0.2.0"
__all__ = ["GENIE", "__version__"]


def __getattr__(name: str) -> Any:
    """Resolve GENIE on first use, so that importing the package costs nothing."""
    if name == "GENIE":
        from genie_dg.optim.genie import GENIE

        return GENIE
    raise AttributeError(f"module 'genie_dg' has no attribute {name!r}; it offers {', '.join(__all__)}.")
