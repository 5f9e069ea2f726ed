"""JAX as the tests of this folder want it: 64 bits there, and as it was before elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(autouse=True)
def sixty_four_bits() -> Iterator[None]:
    """With 64 bits enabled; a test that wants 32 disables them for itself."""
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)
