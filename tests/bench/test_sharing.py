"""What a process does by itself when it shares a pass; real processes are in ``contracts/test_sharing.py``."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from genie_dg.bench.parallel import World
from genie_dg.bench.sharing import process_randomness

CPU = torch.device("cpu")


def drawn(rank: int, inside: int) -> tuple[Tensor, Tensor]:
    """Random numbers inside and after."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        with process_randomness(rank, CPU):
            within = torch.rand(inside)
        return within, torch.rand(3)


def test_processes_differ_inside_a_pass_and_agree_after_it() -> None:
    (first, then), (second, also) = drawn(0, 4), drawn(1, 4)
    assert not torch.equal(first, second)
    assert torch.equal(then, also)
    assert torch.equal(drawn(0, 4)[1], drawn(1, 5)[1]), "rows of different number"


def test_a_pass_that_draws_nothing_leaves_the_stream_of_one_process() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        expected = torch.rand(3)
    assert torch.equal(drawn(1, 0)[1], expected)
    assert not torch.equal(drawn(1, 2)[1], expected), "the next pass draws anew"


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_rows_are_all_samples_once_and_nearly_equal(size: int) -> None:
    for samples in range(size, 12):
        rows = [range(samples)[World(rank, size).rows(samples)] for rank in range(size)]
        assert [k for part in rows for k in part] == list(range(samples))
        assert max(map(len, rows)) - min(map(len, rows)) <= 1
