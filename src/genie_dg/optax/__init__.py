"""GENIE for JAX: ``from genie_dg.optax import genie``, a transformation like those of optax, without torch."""

from genie_dg.check import MissingPackage

try:
    import jax as _jax  # noqa: F401  (asked for here, so that the sentence comes before anything else fails)
    import optax as _optax  # type: ignore[import-untyped]  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingPackage(
        f"genie_dg.optax needs JAX and optax, but {error.name} is not installed; "
        'run pip install "genie-dg[jax]" and try again.'
    ) from error

from .transform import GenieState as GenieState
from .transform import genie as genie

__all__ = ["GenieState", "genie"]
