"""Torch's global random streams, set at once."""

from __future__ import annotations

import pytest
import torch

from genie_dg._streams import own_randomness, seed_torch


@pytest.mark.parametrize("seed", [0, 17, 2**63 - 1])
def test_numbers_are_those_of_torchs_own_seeding(seed: int) -> None:
    with own_randomness():
        torch.manual_seed(seed)
        expected = torch.rand(5), torch.nn.functional.dropout(torch.ones(50))
        torch.rand(3)
        seed_torch(seed)
        assert torch.equal(torch.rand(5), expected[0])
        assert torch.equal(torch.nn.functional.dropout(torch.ones(50)), expected[1])
