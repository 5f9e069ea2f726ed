"""Small trees in published layouts, and noise: each is opened, split, looked at and checked."""

from __future__ import annotations

import random
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from genie_dg.data.domains import DataError, DomainSet
from genie_dg.data.published.verify import verify
from genie_dg.data.registry import SETS, open_data
from genie_dg.data.splits import splits
from tests.data.pictures import folder
from tests.data.published.layouts import LAYOUTS

NOISE = ["Debug28", "Debug224"]


def opened(name: str, root: Path) -> DomainSet:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return open_data(name, LAYOUTS[name](root) if name in LAYOUTS else None)


@pytest.mark.parametrize("name", [*NOISE, *LAYOUTS])
def test_every_set_keeps_what_its_row_says(name: str, tmp_path: Path) -> None:
    data, row = opened(name, tmp_path), SETS[name]
    names = tuple(domain.name for domain in data.domains)
    assert data.name == (row.set_name or name)
    assert names == (row.domain_names or names)
    assert data.digest() == opened(name, tmp_path).digest()
    for domain, cut in zip(data.domains, splits(data, trial=0), strict=True):
        assert sorted([*cut.inside, *cut.outside]) == list(range(len(domain)))
        assert set(np.unique(domain.labels)) <= set(range(len(data.classes)))
    report = verify(data)
    assert report.good
    assert sum(report.counts.values()) == len(data)


@pytest.mark.parametrize("name", [name for name, row in SETS.items() if row.kind == "embedded"])
def test_an_embedded_set_is_the_same_every_time_and_moves_no_global_stream(name: str) -> None:
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()  # noqa: NPY002
    first = open_data(name).digest()
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert np.array_equal(np.random.get_state()[1], before[2])  # noqa: NPY002
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(99)
        assert open_data(name).digest() == first


def test_another_set_is_not_taken_for_sviro(tmp_path: Path) -> None:
    folder(tmp_path / "sviro")
    with pytest.raises(DataError, match=r"SVIRO has the domains aclass.* what is here has ink, oil"):
        open_data("SVIRO", tmp_path)


def test_debug_noise_is_the_same_every_time_and_reaches_the_network_as_it_is() -> None:
    """DomainBed's sizes: three domains of sixteen; normal numbers, no mean and deviation of pictures."""
    from genie_dg.data.loaders import Evaluation

    for name, size in (("Debug28", 28), ("Debug224", 224)):
        data = open_data(name)
        assert [len(domain) for domain in data.domains] == [16] * 3
        ((images, _),) = Evaluation(data.domains[0])
        assert images.shape == (16, 3, size, size)
        assert abs(float(images.mean())) < 0.02
        assert abs(float(images.std()) - 1) < 0.02
    assert (SETS["Debug28"].small_images, SETS["Debug224"].small_images) == (True, False)
