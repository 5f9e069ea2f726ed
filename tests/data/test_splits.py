"""DomainBed's check values, and properties of splits and samplers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genie_dg.data.domains import DataError
from genie_dg.data.splits import Sampler, split
from genie_dg.facts import seed_hash

SIZES = {
    "PACS": ((2048, 2344, 1670, 3929), ((1639, 409), (1876, 468), (1336, 334), (3144, 785))),
    "VLCS": ((1415, 2656, 3282, 3376), ((1132, 283), (2125, 531), (2626, 656), (2701, 675))),
    "OfficeHome": ((2427, 4365, 4439, 4357), ((1942, 485), (3492, 873), (3552, 887), (3486, 871))),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes_of_the_published_splits(name: str) -> None:
    counts, wanted = SIZES[name]
    found = [split(count, 0, i) for i, count in enumerate(counts)]
    assert tuple((len(s.inside), len(s.outside)) for s in found) == wanted


@given(count=st.integers(1, 300), trial=st.integers(0, 5), domain=st.integers(0, 5))
def test_a_split_is_domainbeds(count: int, trial: int, domain: int) -> None:
    """Against the published code's steps: a list of keys, shuffled, the first fifth held out."""
    keys = list(range(count))
    np.random.RandomState(seed_hash(trial, domain)).shuffle(keys)
    found = split(count, trial, domain)
    assert found.outside.tolist() == keys[: int(count * 0.2)]
    assert found.inside.tolist() == keys[int(count * 0.2) :]


def test_global_streams_are_not_touched() -> None:
    np.random.seed(3)
    before = np.random.random_sample()
    np.random.seed(3)
    split(50, 0, 0)
    assert np.random.random_sample() == before


def test_a_sampler_draws_with_replacement_and_from_all_positions() -> None:
    sampler = Sampler(np.arange(500, 540), 16, seed=7, domain=2)
    drawn = [sampler.at(step) for step in range(60)]
    assert (sampler.at(25) == drawn[25]).all()
    assert any(len(set(batch.tolist())) < 16 for batch in drawn)
    assert np.bincount(np.concatenate(drawn) - 500, minlength=40).min() > 0


def test_samplers_of_seeds_and_domains_differ() -> None:
    batches = {
        tuple(Sampler(np.arange(1000), 8, seed, domain).at(0).tolist())
        for seed in range(4)
        for domain in range(4)
    }
    assert len(batches) == 16


@pytest.mark.parametrize(("count", "size", "said"), [(0, 4, "Domain 0 has no sample"), (5, 0, "batch_size=0")])
def test_a_sampler_needs_samples(count: int, size: int, said: str) -> None:
    with pytest.raises(DataError, match=said):
        Sampler(np.arange(count), size, 0, 0)
