"""Which tests of the compiled path are part of ``make test``: it compiles for seconds where the others run for
milliseconds, so of its matrices those cells stay that differ most, and the rest is for ``make test-slow``.
"""

from __future__ import annotations

import pytest

MATRICES = {
    "test_golden_trajectory": ("large-float32-fused-released/full", "large-float64-fused-algorithm1/full"),
    "test_hundred_steps": ("fused-coupled-live", "fused-momentum-calm"),
    "test_one_bad_entry_changes_that_entry_only": (),
    "test_the_largest_gradients_that_exist": ("torch.float32-fused",),
    "test_ddp_replicas_are_bit_equal": (),
    "test_fsdp2_follows_the_unsharded_trajectory": ("fused",),
    "test_sharded_along_the_second_dimension": (),
}
"""Tests by name, with the cells of the compiled path that are kept."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the other cells of the compiled path as slow."""
    for item in items:
        name, _, cell = item.name.rstrip("]").partition("[")
        if name in MATRICES and "fused" in cell.split("-") and cell not in MATRICES[name]:
            item.add_marker(pytest.mark.slow)
