"""The data of most runs here."""

from __future__ import annotations

import pytest

from genie_dg.data.domains import DomainSet
from genie_dg.data.registry import open_data


@pytest.fixture(scope="package")
def digits() -> DomainSet:
    return open_data("digits")
