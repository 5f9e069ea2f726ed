"""A small run and some pictures, for the verbs that use models."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.data.pictures import KINDS, write
from tests.inference.conftest import picture_run as picture_run


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A folder of pictures of every kind, one of them broken."""
    for k, (name, mode) in enumerate(KINDS):
        write(tmp_path / "new" / name, k, mode)
    (tmp_path / "new" / "broken.jpg").write_bytes((tmp_path / "new" / "a.jpg").read_bytes()[:300])
    return tmp_path / "new"
