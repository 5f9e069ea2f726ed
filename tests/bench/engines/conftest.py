"""A real Slurm, which the tests of one file share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.slurm import Slurm, slurm


@pytest.fixture(scope="module")
def cluster() -> Iterator[Slurm]:
    """A running Slurm that this process and those it starts use."""
    pytest.importorskip("submitit", reason='submitit is missing: pip install "genie-dg[slurm]"')
    with slurm() as one, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", str(one.conf))
        yield one
